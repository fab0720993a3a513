#!/usr/bin/env bash
# Formatting as .clang-format has it; "check_format.sh --fix" rewrites the files.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t files < <(find megalith tools python tests examples bench -name '*.h' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' 2>/dev/null | sort)
if [[ ${1:-} == --fix ]]; then
  clang-format -i "${files[@]}"
else
  check() { clang-format --dry-run -Werror "$1" 2>/dev/null || { echo "format: $1" >&2; return 1; }; }
  export -f check
  printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -I{} bash -c 'check {}' ||
    { echo "format: these files differ from .clang-format; run make format" >&2; exit 1; }
fi
echo "format: ${#files[@]} files"
