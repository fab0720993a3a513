#!/usr/bin/env bash
# What cppcheck finds without looking into other people's headers. Suppressed is what it gets wrong for lack of them, and
# what the compiler's own warnings find better.
set -euo pipefail
cd "$(dirname "$0")/.."
cppcheck --quiet --std=c++20 --language=c++ --enable=warning,portability --inline-suppr --error-exitcode=1 \
  --suppress=missingIncludeSystem --suppress=missingReturn --suppress=danglingTemporaryLifetime \
  --suppress=preprocessorErrorDirective -I. -j "$(nproc)" megalith tools
echo "cppcheck: nothing found"
