#!/usr/bin/env bash
# Makes the virtual environment in which the Python package is built and tested, build/python, from
# python/requirements.txt. Quick when there is nothing to do. Fails where there is no Python, venv or network: the rest of
# the project does without.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=build/python/.ready
[[ $stamp -nt python/requirements.txt ]] && exit 0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
fail() { echo "python_env: $1: $(tail -n1 "$log")" >&2; exit 1; }
echo "python_env: making build/python" >&2
python3=$(command -v /usr/bin/python3 || command -v python3) || { echo "python_env: there is no python3" >&2; exit 1; }
"$python3" -c 'import os, sysconfig; assert os.path.exists(sysconfig.get_path("include") + "/Python.h")' 2>"$log" ||
  fail "no headers of $python3 (Debian: python3-dev)"
"$python3" -m venv build/python >"$log" 2>&1 || fail "no virtual environment"
build/python/bin/pip install --quiet -r python/requirements.txt >"$log" 2>&1 || fail "pip"
touch "$stamp"
