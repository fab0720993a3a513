#!/usr/bin/env bash
# Formatting as .clang-format has it; "check_format.sh --fix" rewrites the files.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t files < <(find megalith tools python tests examples bench -name '*.h' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' 2>/dev/null | sort)
if [[ ${1:-} == --fix ]]; then
  clang-format -i "${files[@]}"
else
  # Many files a run: to start it takes longer than to read one. Of each line that differs it says where.
  differing=$(printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 40 clang-format --dry-run -Werror 2>&1) || {
    named=$(sed -n 's/^\([^: ]*\):[0-9]*:[0-9]*: error: .*/format: \1/p' <<<"$differing" | sort -u)
    echo "${named:-$differing}" >&2
    echo "format: these files differ from .clang-format; run make format" >&2
    exit 1
  }
fi
echo "format: ${#files[@]} files"
