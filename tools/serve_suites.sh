#!/usr/bin/env bash
# Tests of the server that need more than a build should fetch: Ray and lm-evaluation-harness, which take 1.3 GB under
# build/serve-suites.
#   serve_suites.sh MEGALITH [pytest arguments]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
megalith=$(realpath "$1")
shift
environment=$root/build/serve-suites
packages=("ray[serve]" httpx langchain-openai pytest "lm-eval[api]" transformers)
if ! [[ $environment/.packages -nt $0 ]]; then
  echo "serve suites: fetching ${packages[*]}" >&2
  python3 -m venv "$environment"
  "$environment/bin/pip" install -q "${packages[@]}"
  touch "$environment/.packages"
fi
export MEGALITH_COMMAND=$megalith MEGALITH_CACHE_DIR=${MEGALITH_CACHE_DIR:-$root/build/serve-suites/cache} PYTHONDONTWRITEBYTECODE=1
echo_server=$root/build/release/tests/echo_server  # where `make test` was run
[[ ! -x $echo_server ]] || export MEGALITH_ECHO=$echo_server
exec "$environment/bin/python" -m pytest -q -p no:cacheprovider -rs "$root"/tests/serve/{langchain,ray,lm_eval}_test.py "$@"
