#!/usr/bin/env bash
# Runs every ```sh block of the given documents that has a line `megalith ...`; each must succeed. Where a ```output
# block follows, what was written to stdout must have its lines, in their order; `...` in them stands for anything.
# Usage: run_commands.sh MEGALITH SOURCE_DIR DOCUMENT...
set -u
command=$1 source=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$source/models" "$work/models"
ln -s "$source/examples" "$work/examples"
mkdir "$work/bin" && ln -s "$command" "$work/bin/megalith"
export PATH="$work/bin:$PATH" EDITOR=true
export MEGALITH_PRODUCTS=f32  # what the pages show: with AMX more tokens are worked on at a time, and more lies in bf16
cd "$work" || exit 1

# The first line of the file $1 that the file $2 has not, or not behind those before it.
missing_line() {
  awk '
    function fits(line, wanted,    parts, n, i, at, place) {
      n = split(wanted, parts, /\.\.\./)
      if (n < 2) return line == wanted
      if (substr(line, 1, length(parts[1])) != parts[1]) return 0
      at = length(parts[1]) + 1
      for (i = 2; i < n; i++) {
        place = index(substr(line, at), parts[i])
        if (!place) return 0
        at += place - 1 + length(parts[i])
      }
      return length(line) - at + 1 >= length(parts[n]) && substr(line, length(line) - length(parts[n]) + 1) == parts[n]
    }
    { sub(/[ \t]+$/, "") }
    NR == FNR { if ($0 != "...") wanted[++count] = $0; next }
    done < count && fits($0, wanted[done + 1]) { done++ }
    END { if (done < count) print wanted[done + 1] }' "$1" "$2"
}

failed=0 run=0
complain() {
  failed=$((failed + 1))
  printf '%s: %s:\n' "$document" "$1"
  cat "$block"
}
for document in "$@"; do
  # Each block into a file of its own, in order; later blocks of a document may build on earlier ones.
  rm -f block.* wanted.*
  awk '/^```sh/ {on = 1; name = sprintf("block.%03d", ++n); next} /^```output/ {on = 1; name = sprintf("wanted.%03d", n); next}
       /^```/ {on = 0} on {print > name}' "$document"
  for block in block.*; do
    grep -qE '^(MEGALITH_[A-Z]+=[^ ]+ )*megalith ' "$block" 2>/dev/null || continue
    run=$((run + 1))
    if ! timeout 300 bash -e -o pipefail "$block" >out 2>err </dev/null; then
      complain "this does not work"
      tail -5 err
    elif [ -e "wanted.${block#block.}" ] && missing=$(missing_line "wanted.${block#block.}" out) && [ -n "$missing" ]; then
      complain "this does not say \"$missing\""
      cat out
    fi
  done
done
echo "$run blocks run, $failed failed"
[ "$failed" -eq 0 ] && [ "$run" -gt 0 ]
