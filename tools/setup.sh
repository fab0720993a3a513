#!/usr/bin/env bash
# Installs the Debian packages that packages.txt lists for a purpose: setup.sh [run|build|test|check|fuzz].
# Quick when there is nothing to do: a stamp that is newer than the list and the package database is the whole check.
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-run}
case $purpose in
  run) purposes="run" ;;
  build) purposes="run|build" ;;
  test) purposes="run|build|test" ;;
  check) purposes="run|build|test|check" ;;
  fuzz) purposes="run|fuzz" ;;
  *) echo "usage: tools/setup.sh [run|build|test|check|fuzz]" >&2; exit 2 ;;
esac

list=tools/packages.txt
stamp=build/.packages-$purpose
[[ $stamp -nt $list && $stamp -nt /var/lib/dpkg/status ]] && exit 0

mapfile -t packages < <(sed 's/#.*//' "$list" | awk -v purposes="^($purposes)\$" '$1 ~ purposes {print $2}')

if ! command -v dpkg-query >/dev/null; then
  # Not a Debian. CMake names the header that is missing, if one is.
  for program in c++ cmake ninja; do
    command -v $program >/dev/null || { echo "setup: $program is missing; install what Debian calls: ${packages[*]}" >&2; exit 1; }
  done
  exit 0
fi

present=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null | awk '$2 == "installed" {print $1}' || true)
missing=()
for package in "${packages[@]}"; do
  grep -qxF -- "$package" <<<"$present" || missing+=("$package")
done

if ((${#missing[@]})); then
  fail() { echo "setup: missing packages: ${missing[*]} ($1); as root: apt-get install ${missing[*]}" >&2; exit 1; }
  as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "not root, and there is no sudo"
    # Without a terminal nobody can type a password.
    if [[ -t 0 ]]; then as_root=(sudo); else sudo -n true 2>/dev/null || fail "sudo wants a password"; as_root=(sudo -n); fi
  fi
  echo "setup: installing ${missing[*]}" >&2
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  install() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1
  }
  # The lists of a fresh machine are empty or old; fetching them is tried only if it has to be.
  install || { "${as_root[@]}" apt-get update >"$log" 2>&1 && install; } || fail "apt-get: $(grep -m1 '^E:' "$log" || tail -n1 "$log")"
fi

mkdir -p build
touch "$stamp"
