#!/usr/bin/env bash
# The page of a profile in a browser: that its script runs to the end, and that what it shows is what was profiled.
#   run.sh MEGALITH [SCREENSHOT.png]
# Exits with 77 where there is no Chromium (Debian: chromium).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
megalith=$1
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
  echo "[SKIP] there is no Chromium"
  exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$megalith" profile "$root/models/storyteller" -n 8 --warmup 4 -t 2 -o "$work/trace.json" --page "$work/page.html" >"$work/out"

open_page() {
  timeout 60 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1400,1000 \
    --user-data-dir="$work/user" --virtual-time-budget=3000 "$@" "file://$work/page.html" 2>"$work/browser.log"
}
open_page --dump-dom >"$work/dom"
expect() { # expect WHAT PATTERN
  grep -q -- "$2" "$work/dom" && return
  echo "FAILED: $1: no \"$2\" in the page; the browser says:"
  tail -n 5 "$work/browser.log"
  exit 1
}
expect "the script ended" 'data-ready="yes"'
expect "the title" 'id="title">storyteller: 2 workers, '
expect "one step is shown, not all" 'id="step">Step [0-9]*, [0-9.]* [um]s, from the [0-9][0-9]* that were recorded'
expect "an operator that takes time" '</span>rmsnorm_gate_up</td><td>[0-9.]* [um]s</td>'
expect "an event that is waited for" '<tr><td>layer\.[0-9]*\.'
[[ $# -lt 2 ]] || open_page --screenshot="$2"
echo "page: $(grep -o 'id="title">[^<]*' "$work/dom" | cut -d'>' -f2)"
