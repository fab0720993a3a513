#!/usr/bin/env bash
# Runs the tests of a build folder, several programs at a time, and ends with one line that counts single tests and, if
# some failed, with their names and what they said:
#   run_tests.sh build/release [ctest arguments]
set -euo pipefail
build=$1
shift

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
# One cache for all programs: what one run compiled the next one finds, and the user's own cache is left alone.
export MEGALITH_CACHE_DIR=${MEGALITH_CACHE_DIR:-$(realpath "$build")/tests/cache}
# Most tests are about what kernels do, not how fast: theirs are compiled in a third of the time, to the same bits. Those
# of the kernels themselves optimise them fully (tests/CMakeLists.txt), and so does `make test-all` for all.
[[ -n ${MEGALITH_ALL_CONFIGURATIONS:-} ]] || export MEGALITH_OPTIMIZE=${MEGALITH_OPTIMIZE:-little}
start=$SECONDS
code=0
# Each program leaves its counts there; GoogleTest makes the names unique. One more than there are cores, since some wait:
# for a watchdog, for a server, for a compiler on the other core.
GTEST_OUTPUT="xml:$results/" ctest --test-dir "$build" --output-on-failure -j $(($(nproc) + 1)) "$@" || code=$?

count() { cat "$results"/*.xml 2>/dev/null | grep -c "$1" || true; }
tests=$(count '<testcase ')
failed=$(cat "$results"/*.xml 2>/dev/null | grep -A1 '<testcase ' | grep -c '<failure ' || true)
skipped=$(count 'result="skipped"')
programs=$(find "$results" -name '*.xml' | wc -l)
echo "tests: $((tests - failed - skipped)) passed, $failed failed, $skipped skipped, in $programs programs and $((SECONDS - start)) s"
# What was skipped and why, in one line: gtest's programs say "[SKIP] reason", pytest "SKIPPED [2] file:12: reason".
log=$build/Testing/Temporary/LastTest.log
reasons=$({ sed -n 's/^\[SKIP\] //p' "$log"; awk 'sub(/^SKIPPED \[/, "") { n = $0 + 0; sub(/^[0-9]+\] [^ ]+ /, ""); while (n-- > 0) print }' "$log"; } 2>/dev/null |
  sort | uniq -c | sort -rn | awk '{ n = $1; sub(/^ *[0-9]+ /, ""); printf "%s%d x %s", sep, n, substr($0, 1, 160); sep = "; " }')
echo "skipped: ${reasons:-nothing}"
((code == 0 || failed > 0)) || echo "tests: a program crashed or ran out of time, see above" >&2
((tests > 0)) || { echo "tests: none ran" >&2; exit 1; }
((code == 0)) || ! command -v python3 >/dev/null || python3 "$(dirname "$0")/failed_tests.py" "$log"
exit $code
