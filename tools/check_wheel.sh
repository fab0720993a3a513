#!/usr/bin/env bash
# What a user of Python does first: pip install in a clean virtual environment, import, and the quick start. Ends with how
# long that took.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD venv=build/wheel-check
start=$SECONDS
rm -rf "$venv"
"$(command -v /usr/bin/python3 || command -v python3)" -m venv "$venv"
"$venv/bin/pip" install --quiet "$root"
# From elsewhere, so that nothing comes from the working tree.
cd "$(mktemp -d)"
"$root/$venv/bin/python" "$root/examples/python/quick_start.py" "$root/models/storyteller"
size=$(du -sh "$("$root/$venv/bin/python" -c 'import megalith, os; print(os.path.dirname(megalith.__file__))')" | cut -f1)
echo "wheel: installed, imported and run in $((SECONDS - start)) s; the package is $size"
