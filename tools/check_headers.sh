#!/usr/bin/env bash
# Each header compiles alone: nobody has to know what to include before it. What of the standard library many sources
# include is read once for all of them, as the build does; what a header forgets of that check_includes.py finds.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export folder flags="-std=c++20 -Wall -Wextra -Wno-missing-field-initializers -Werror -fopenmp-simd -I."
sed -n '/^set(megalith_precompiled/,/)/p' cmake/folder.cmake | grep -o '<[^>]*>' | sed 's/^/#include /' > "$folder/standard.h"
"${CXX:-c++}" $flags -x c++-header "$folder/standard.h" -o "$folder/standard.h.gch"

check() {
  "${CXX:-c++}" $flags -fsyntax-only -Winvalid-pch -include "$folder/standard.h" -include "$1" -x c++ /dev/null ||
    { echo "$1 does not compile alone" >&2; return 1; }
}
export -f check
find megalith tools -name '*.h' -print0 | sort -z | xargs -0 -P "$(nproc)" -I{} bash -c 'check {}'
echo "headers: $(find megalith tools -name '*.h' | wc -l) compile alone"
