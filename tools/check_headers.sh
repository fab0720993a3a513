#!/usr/bin/env bash
# Each header compiles alone: nobody has to know what to include before it.
set -euo pipefail
cd "$(dirname "$0")/.."

check() {
  "${CXX:-c++}" -std=c++20 -fsyntax-only -Wall -Wextra -Wno-missing-field-initializers -Werror -fopenmp-simd -I. \
    -include "$1" -x c++ /dev/null || { echo "$1 does not compile alone" >&2; return 1; }
}
export -f check
mapfile -t headers < <(find megalith tools -name '*.h' | sort)
printf '%s\0' "${headers[@]}" | xargs -0 -P "$(nproc)" -I{} bash -c 'check {}'
echo "headers: ${#headers[@]} compile alone"
