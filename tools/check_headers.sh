#!/usr/bin/env bash
# Each header compiles alone: nobody has to know what to include before it. Of a header that its own source includes
# first the build has shown it; of the standard library's headers, which may be precompiled, check_includes.py.
set -euo pipefail
cd "$(dirname "$0")/.."

check() {
  "${CXX:-c++}" -std=c++20 -fsyntax-only -Wall -Wextra -Wno-missing-field-initializers -Werror -fopenmp-simd -I. \
    -include "$1" -x c++ /dev/null || { echo "$1 does not compile alone" >&2; return 1; }
}
export -f check
comes_first() {
  local source=${1%.h}.cpp
  [[ -f $source && $(grep -m1 '^#include' "$source") == "#include \"$1\"" ]]
}
headers=() built=0
while read -r header; do
  if comes_first "$header"; then built=$((built + 1)); else headers+=("$header"); fi
done < <(find megalith tools -name '*.h' | sort)
printf '%s\0' "${headers[@]}" | xargs -0 -P "$(nproc)" -I{} bash -c 'check {}'
echo "headers: ${#headers[@]} compile alone, and $built come first in their sources"
