#!/usr/bin/env bash
# Builds the fuzz targets with clang, libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer, and runs each:
#   run_fuzz.sh [seconds for each, 60] [target...]
# It begins with what the tests have, and with inputs that once broke something (tests/fuzz/inputs/TARGET). What it finds
# is written to build/fuzz/found; keep it there until it is mended, then move it to tests/fuzz/inputs/TARGET.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
targets=("$@")
((${#targets[@]})) || mapfile -t targets < <(basename -s .cpp -a tests/fuzz/targets/*.cpp)

cxx=${CXX:-clang++}
command -v "$cxx" > /dev/null || { echo "fuzz: $cxx not found: apt-get install clang" >&2; exit 1; }
cache=$(command -v ccache || true)
build=build/fuzz
mkdir -p $build/found
flags=(-std=c++20 -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined
       -DMEGALITH_VERSION=\"fuzz\" -DMEGALITH_SOURCE_DIR=\".\" -I.)

# What the targets need: all but the decoders, which would need the operators and the runtime.
mapfile -t sources < <(grep -LE '"megalith/model/(decoder|draft_model)\.h"' megalith/base/*.cpp megalith/loop/*.cpp megalith/loop/transform/*.cpp megalith/graph/*.cpp megalith/model/*.cpp \
  megalith/task/{bytes,json,json_text,stream_chunks}.cpp megalith/task/verify*.cpp \
  megalith/grammar/{choice,without_grammars}.cpp megalith/jit/{cache_entry,trust}.cpp megalith/runtime/{memory,topology}.cpp \
  megalith/serve/{answer_parser,answer_syntax,api_error,call_object,call_parser,fields,generation_request,grammar_fields,http,http_answer_reader,http_reader,json_call_parser,json_scanner,json_text,llama_fields,sse_reader,stream_chunk,tool_fields,unsupported_fields,user_value,xml_call_parser}.cpp)
export cxx cache build
export flags_text="${flags[*]}"
compile() {
  object=$build/${1//\//_}.o
  if [[ ! -f $object || $1 -nt $object || -n $(find megalith -name '*.h' -newer "$object" -print -quit) ]]; then
    # Debian 12's clang 14 has no _Float16, which this one file needs.
    if [[ $1 == megalith/base/dtype.cpp ]]; then
      $cache g++ -std=c++20 -O1 -I. -c "$1" -o "$object"
    else
      $cache $cxx $flags_text -fsanitize=fuzzer-no-link -c "$1" -o "$object"
    fi
  fi
}
export -f compile
objects=()  # of these alone: a source that is gone may have left one
for source in "${sources[@]}"; do objects+=("$build/${source//\//_}.o"); done
printf '%s\0' "${sources[@]}" | xargs -0 -P "$(nproc)" -I{} bash -c 'compile {}'

seeds() {  # for one target, as a folder of files
  local folder=$build/seeds/$1
  rm -rf "$folder"
  mkdir -p "$folder"
  case $1 in
    config) cp models/storyteller/config.json "$folder"; for f in models/shapes/*/config.json; do cp "$f" "$folder/$(basename "$(dirname "$f")")"; done ;;
    special_tokens) cp models/storyteller/tokenizer_config.json "$folder" ;;
    tokenizer) cp tests/golden/tokenizers/*.tokenizer.json "$folder" ;;
    chat_template)
      cp models/storyteller/chat_template.jinja "$folder"
      python3 -c 'import json, sys
for i, case in enumerate(json.load(open("tests/golden/chat.json"))["cases"]):
    open(f"{sys.argv[1]}/{i}", "w").write(case["template"])' "$folder" ;;
    safetensors) cp tests/golden/tiny/*/logits.safetensors --backup=numbered "$folder" ;;
    loop_kernel) for f in megalith/ops/*.cpp; do sed -n '/R"($/,/)"/p' "$f" | sed '1d;$d' > "$folder/$(basename "$f" .cpp)"; done ;;
    cache_entry) printf '{"name": "x", "key": "k", "created": 1, "files": {"kernel.so": {"bytes": 1, "hash": "h"}}}' > "$folder/tiny" ;;
    task_graph) awk '/^```json/ {on = 1; next} /^```/ {on = 0} on' docs/task-graph.md > "$folder/tiny" ;;
  esac
  [[ ! -d tests/fuzz/inputs/$1 ]] || cp tests/fuzz/inputs/"$1"/* "$folder"
}

failed=0
for target in "${targets[@]}"; do
  $cache "$cxx" "${flags[@]}" -fsanitize=fuzzer-no-link -c "tests/fuzz/targets/$target.cpp" -o "$build/target_$target.o"
  "$cxx" "${flags[@]}" -fsanitize=fuzzer "$build/target_$target.o" "${objects[@]}" -lisl -lgmp -lpcre2-8 -lutf8proc -lpthread \
    -o "$build/$target"
  seeds "$target"
  mkdir -p "$build/corpus/$target"
  # A second is far more than any input of this length needs; the stack's bounds are made for 8 MB.
  "$build/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="$build/found/$target-" "$build/corpus/$target" "$build/seeds/$target" > "$build/$target.log" 2>&1 ||
    { failed=1; echo "fuzz: $target found something: see $build/$target.log and $build/found" >&2; }
  echo "fuzz: $target: $(grep -o 'number_of_executed_units: *[0-9]*' "$build/$target.log" | grep -o '[0-9]*$' || echo no) runs"
done
exit $failed
