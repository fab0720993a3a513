#!/usr/bin/env bash
# Runs every ```sh block of the given documents that has a line `megalith ...`; each must succeed.
# Usage: run_commands.sh MEGALITH SOURCE_DIR DOCUMENT...
set -u
command=$1 source=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$source/models" "$work/models"
mkdir "$work/bin" && ln -s "$command" "$work/bin/megalith"
export PATH="$work/bin:$PATH" EDITOR=true
cd "$work" || exit 1

failed=0 run=0
for document in "$@"; do
  # Each block into a file of its own, in order; later blocks of a document may build on earlier ones.
  rm -f block.*
  awk '/^```sh/ {on = 1; n++; next} /^```/ {on = 0} on {print > sprintf("block.%03d", n)}' "$document"
  for block in block.*; do
    grep -qE '^(MEGALITH_[A-Z]+=[^ ]+ )*megalith ' "$block" 2>/dev/null || continue
    run=$((run + 1))
    if ! timeout 300 bash -e -o pipefail "$block" >out 2>err </dev/null; then
      failed=$((failed + 1))
      printf '%s: this does not work:\n' "$document"
      cat "$block"
      tail -5 err
    fi
  done
done
echo "$run blocks run, $failed failed"
[ "$failed" -eq 0 ] && [ "$run" -gt 0 ]
