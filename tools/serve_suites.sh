#!/usr/bin/env bash
# Tests of the server that need more than a build should fetch: Ray, lm-evaluation-harness, LangChain, Schemathesis and
# llama.cpp's tests, which take 1.3 GB under build/serve-suites.
#   serve_suites.sh MEGALITH [pytest arguments]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
megalith=$(realpath "$1")
shift
environment=$root/build/serve-suites
packages=("ray[serve]" httpx langchain-openai pytest "lm-eval[api]" transformers filelock prometheus-client wget schemathesis)
llama_cpp=llama-cpp-python==0.3.36  # whose sources have llama.cpp's
if ! [[ $environment/.packages -nt $0 ]]; then
  echo "serve suites: fetching ${packages[*]}" >&2
  python3 -m venv "$environment"
  "$environment/bin/pip" install -q "${packages[@]}"
  sources=$(mktemp -d)
  trap 'rm -rf "$sources"' EXIT
  "$environment/bin/pip" download -q --no-deps --no-binary llama-cpp-python -d "$sources" "$llama_cpp"
  rm -rf "$environment/llama_cpp"
  mkdir "$environment/llama_cpp"
  tar -xzf "$sources"/*.tar.gz -C "$environment/llama_cpp" --wildcards --strip-components=6 '*/llama.cpp/tools/server/tests'
  # What its model says, how long prompts are in its tokens, what its files and its builds are called and that the first piece of
  # an answer is null instead of empty is not ours; each test starts the server that it wants.
  sed -i 's/^def match_regex(.*:$/&\n    return True\n/' "$environment/llama_cpp/utils.py"
  sed -i 's/== n_prompt$/> 0/' "$environment"/llama_cpp/unit/*.py
  sed -i 's/startswith("b")/startswith("megalith")/; s/assert "\.gguf" in/assert "storyteller" in/' "$environment"/llama_cpp/unit/*.py
  sed -i 's/\["content"\] is None/["content"] == ""/; s/delta\.content is None/delta.content == ""/' "$environment"/llama_cpp/unit/*.py
  sed -i '/skip(reason="This test fails on linux/d; s/("temperature", \[0\.0\])/("temperature", [0.0, 1.0])/' "$environment"/llama_cpp/unit/*.py
  sed -i 's/ServerPreset.load_all()/pass/' "$environment/llama_cpp/conftest.py"
  touch "$environment/.packages"
fi
export MEGALITH_COMMAND=$megalith MEGALITH_CACHE_DIR=${MEGALITH_CACHE_DIR:-$root/build/serve-suites/cache} PYTHONDONTWRITEBYTECODE=1
echo_server=$root/build/release/tests/echo_server  # where `make test` was run
[[ ! -x $echo_server ]] || export MEGALITH_ECHO=$echo_server
failed=0
run() { "$environment/bin/python" -m pytest -q -p no:cacheprovider -rs "$@" || [[ $? == 5 ]] || failed=1; }  # 5: none was asked for
run "$root"/tests/serve/{langchain,ray,lm_eval,schemathesis}_test.py "$@"
# llama.cpp's own tests of its server; docs/serving.md says which of them are not for this one.
export LLAMA_SERVER_BIN_PATH=$root/tests/serve/llama_cpp/llama_server.py PORT=${PORT:-8431}
mapfile -t tests <"$root/tests/serve/llama_cpp/tests.txt"
cd "$environment/llama_cpp"
run "${tests[@]}" "$@"
exit $failed
