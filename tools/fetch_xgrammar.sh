#!/usr/bin/env bash
# Fetches the sources of xgrammar, with which grammars of structured output are built (cmake/xgrammar.cmake), from PyPI into the
# folder that is named. Quick when there is nothing to do. Fails where there is no pip or no network: the rest of the project
# does without. MEGALITH_XGRAMMAR names a copy of the archive, for machines without a network.
set -euo pipefail

version=0.2.8
sha256=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80
folder=${1:?usage: tools/fetch_xgrammar.sh FOLDER}

stamp=$folder/.ready-$version
[[ -f $stamp ]] && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "fetch_xgrammar: $1" >&2; exit 1; }

archive=${MEGALITH_XGRAMMAR:-}
if [[ -z $archive ]]; then
  archive=$work/xgrammar-$version.tar.gz
  for python3 in "$(dirname "$0")/../build/python/bin/python" /usr/bin/python3 python3; do
    "$python3" -m pip --version >/dev/null 2>&1 || continue
    # pip runs the archive's build script for its metadata, in an environment of its own.
    "$python3" -m pip download --quiet --disable-pip-version-check --retries 1 --timeout 20 --no-deps --no-binary xgrammar \
      --dest "$work" "xgrammar==$version" >"$work/log" 2>&1 && break
    fail "pip: $(tail -n1 "$work/log")"
  done
  [[ -f $archive ]] || fail "there is no pip (Debian: python3-venv)"
fi
sha256sum --check --status <<<"$sha256  $archive" || fail "$archive is not what it was when this was written"

rm -rf "$folder"
mkdir -p "$folder"
tar -xzf "$archive" -C "$folder" --strip-components=1 --exclude "*/tvm_ffi/*" --wildcards "xgrammar-$version/LICENSE" \
  "xgrammar-$version/NOTICE" "xgrammar-$version/cpp/*" "xgrammar-$version/include/*" \
  "xgrammar-$version/3rdparty/picojson/*" "xgrammar-$version/3rdparty/dlpack/include/*"
touch "$stamp"
