#!/usr/bin/env bash
# All that is checked and measured on a machine with a GPU, in one run, so that figures that are compared come from the
# same card in the same minutes: the tests, the limit of its memory, our decode steps and prompts, PyTorch's, compute-sanitizer. Two
# steps are run only if they are named: `logits` compares ours with those of transformers in float32, `soak` decodes a
# million steps of the bundled model, 20,000 of a larger one and 20,000 of 64 texts at a time.
# A step that fails or takes too long costs only itself.
#
#   tools/gpu_check.sh --out DIR [--bin DIR] [--steps tests,stream,ours,torch,prompt,sanitize,logits,soak] [--budget SECONDS]
#                      [--sanitizer FILE] [--dry-run]
#
# --bin: where `megalith` and `test_cuda` are; without it they are built. --sanitizer: another compute-sanitizer than
# that of the PATH; racecheck before 2026.3 reports hazards that are none. Leaves result.md and result.json in --out,
# beside the log of each step.
set -u -o pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
command_line="tools/gpu_check.sh $*"
out='' bin='' sanitizer=compute-sanitizer steps=tests,stream,ours,prompt,torch,sanitize budget=540 dry=''

usage() {
  sed -n '8,13s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

while [ $# -gt 0 ]; do
  case $1 in
    --out | --bin | --steps | --budget | --sanitizer)
      [ $# -ge 2 ] || usage
      declare "${1#--}=$2"
      shift 2
      ;;
    --dry-run)
      dry=yes
      shift
      ;;
    *) usage ;;
  esac
done
[ -n "$out" ] || usage
for step in ${steps//,/ }; do
  case $step in
    tests | stream | ours | prompt | torch | sanitize | logits | soak) ;;
    *)
      echo "gpu_check: there is no step \"$step\"; there are tests, stream, ours, prompt, torch, sanitize, logits and soak" >&2
      exit 2
      ;;
  esac
done

# FOLDER:BATCH:CONTEXT, as tools/baselines/torch_decode.py takes them.
cases=(
  models/shapes/Qwen3-0.6B:1:512
  models/shapes/Qwen3-0.6B:1:32000
  models/shapes/Llama-3.2-1B:1:512
  models/shapes/Qwen3-8B:1:512
  models/shapes/Qwen3-8B:1:4096
  models/shapes/Qwen3-8B:8:512
  models/shapes/Qwen3-8B:64:512
  models/shapes/Qwen3-8B:128:512
)
tokens=48 # measured per repetition, the last ones of the context
prompt_models=(models/shapes/Qwen3-0.6B models/shapes/Qwen3-8B)
prompt_lengths=(512 2048 8192)

failed=0
wants() { [[ ,$steps, == *,$1,* ]]; }
left() { echo $((budget - SECONDS)); }

# run NAME LIMIT COMMAND...: within LIMIT seconds, or what is left of the budget. Output goes to NAME.log, and the line
# NAME, exit code, seconds, command to steps.tsv.
run() {
  local name=$1 limit=$2 code begin=$SECONDS
  shift 2
  [ "$limit" -le "$(left)" ] || limit=$(left)
  if [ -n "$dry" ]; then
    printf '%-28s %4s s  %s\n' "$name" "$limit" "$*"
    return 0
  fi
  if [ "$limit" -le 3 ]; then
    code=skipped
    echo "no time left" >"$out/$name.log"
  else
    timeout --kill-after=5 "$limit" "$@" >"$out/$name.log" 2>&1
    code=$?
  fi
  [ "$code" = 0 ] || failed=1
  printf '%s\t%s\t%s\t%s\n' "$name" "$code" "$((SECONDS - begin))" "$*" >>"$out/steps.tsv"
  printf '%-28s %4s s  exit %s\n' "$name" "$((SECONDS - begin))" "$code"
  [ "$code" = 0 ] || tail -n 5 "$out/$name.log" | sed 's/^/    /'
}

gpu_state() {
  [ -n "$dry" ] || nvidia-smi --format=csv,noheader \
    --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.draw,temperature.gpu,memory.used \
    >"$out/gpu_$1.txt" 2>&1
}

build_binaries() {
  bin=$root/build/release
  run build 400 bash -c "cd '$root' && cmake --preset release -DMEGALITH_TESTS=ON && ninja -C build/release megalith test_cuda"
  local binaries=("$bin/tools/megalith" "$bin/tests/test_cuda")
  [ -n "$dry" ] || { [ -x "${binaries[0]}" ] && [ -x "${binaries[1]}" ]; }
}

# What compiles without a GPU is tested without one. In shares side by side, since most of it is compiling.
step_tests() {
  run tests 150 bash -c "failed=0; for share in {0..7}; do GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=\$share '$test_cuda' \
--gtest_brief=1 --gtest_filter=-'*CudaCompile*' & done; for share in {0..7}; do wait -n || failed=1; done; exit \$failed"
}

step_stream() {
  run stream_build 60 nvcc -O3 -std=c++17 -arch=native -o "$work/stream_limit" "$root/tools/baselines/stream_limit.cu"
  run stream 30 bash -c "'$work/stream_limit' > '$out/stream.json'"
}

# As a user runs it, with room for as many sequences as there are.
step_ours() {
  local case folder batch context name
  for case in "${cases[@]}"; do
    IFS=: read -r folder batch context <<<"$case"
    name=ours_$(basename "$folder")_b${batch}_c$context
    run "$name" 60 bash -c "'$megalith' bench '$root/$folder' --target cuda --load-format dummy --max-batch $batch \
-p 0 -n $tokens -d $((context - tokens)) -r 5 -o json > '$out/$name.json'"
  done
}

# Prompts, and the tokens behind them.
step_prompt() {
  local model length lengths arguments=()
  lengths=$(IFS=, && echo "${prompt_lengths[*]}")
  for model in "${prompt_models[@]}"; do
    run "prompt_$(basename "$model")" 60 bash -c "'$megalith' bench '$root/$model' --target cuda --load-format dummy --max-batch 1 \
-p $lengths -n $tokens -r 5 -o json > '$out/prompt_$(basename "$model").json'"
    for length in "${prompt_lengths[@]}"; do arguments+=(--case "$root/$model:$length"); done
  done
  run prompt_torch 150 python3 "$root/tools/baselines/torch_prompt.py" --out "$out/prompt_torch.json" "${arguments[@]}"
}

step_torch() {
  local arguments=() case limit=$(($(left) - 170))
  wants sanitize || limit=$(left)
  [ -n "$dry" ] || [ "$limit" -ge 30 ] || limit=30
  for case in "${cases[@]}"; do arguments+=(--case "$root/$case"); done
  run torch "$limit" python3 "$root/tools/baselines/torch_decode.py" --out "$out/torch.json" --variants graph,compiled,tuned \
    --budget $((limit > 60 ? limit - 30 : limit)) "${arguments[@]}"
}

# Some of the operators, a few tokens of a whole model, and prompts: of 256 tokens at a time, and of 512, where two workers
# share the products of a matrix with enough columns. The watchdog knows nothing of how slow this is. racecheck is given
# kernels in which each thread arrives at barriers itself.
step_sanitize() {
  local tool checked prompt=("$megalith" bench --target cuda --regimes 0 --prompt-rows 0 --max-batch 1 -n 0 -r 1)
  if [ -z "$dry" ]; then
    mkdir -p "$work/partners"
    sed 's/"intermediate_size": [0-9]*/"intermediate_size": 2048/; s/"num_hidden_layers": [0-9]*/"num_hidden_layers": 2/' \
      "$root/models/storyteller/config.json" >"$work/partners/config.json"
  fi
  for tool in memcheck racecheck; do
    checked=(env MEGALITH_WATCHDOG_MS=0 "MEGALITH_RACECHECK=$([ $tool != racecheck ] || echo 1)" "$sanitizer"
      --tool "$tool" --error-exitcode 9)
    run "${tool}_model" 60 "${checked[@]}" "$megalith" run "$root/models/storyteller" --target cuda \
      -p "Once upon a time" -n 4 --temp 0 --ignore-eos
    run "${tool}_64_texts" 60 "${checked[@]}" "$megalith" bench "$root/models/storyteller" --target cuda --max-batch 64 -b 64 \
      -p 0 -n 2 -r 1
    run "${tool}_prompt" 60 "${checked[@]}" "${prompt[@]}" "$root/models/storyteller" -b 256 -p 256
    run "${tool}_partners" 60 "${checked[@]}" "${prompt[@]}" "$work/partners" --load-format dummy -b 512 -c 600 -p 512
    run "${tool}_operators" 60 "${checked[@]}" "$test_cuda" --gtest_filter='Part/CudaOperators.*/0'
  done
}

step_logits() {
  run logits 180 bash -c "python3 '$root/tools/gpu_logits.py' --config '$root/models/shapes/Qwen3-0.6B' --megalith '$megalith' \
--work '$work' > '$out/logits.json'"
}

# The budget bounds them, too; what is soaked is said in the log, every ten seconds.
step_soak() {
  run soak_storyteller 300 "$megalith" bench soak "$root/models/storyteller" --target cuda --steps 1000000
  run soak_Qwen3-0.6B 120 "$megalith" bench soak "$root/models/shapes/Qwen3-0.6B" --target cuda --load-format dummy \
    --max-seq-len 2048 --steps 20000
  run soak_64_texts 120 "$megalith" bench soak "$root/models/storyteller" --target cuda --max-batch 64 -b 64 \
    --max-seq-len 256 --steps 20000
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MEGALITH_CACHE_DIR=$work/cache TORCHINDUCTOR_CACHE_DIR=$work/inductor TRITON_CACHE_DIR=$work/triton
export PYTHONDONTWRITEBYTECODE=1
PATH=$PATH:/usr/local/cuda/bin
if [ -z "$dry" ]; then
  mkdir -p "$out" || exit 1
  out=$(cd "$out" && pwd)
  rm -f "$out/steps.tsv" "$out/result.md" "$out/result.json" "$out/torch.json"
  git -C "$root" rev-parse HEAD >"$out/commit.txt" 2>/dev/null || echo unknown >"$out/commit.txt"
  git -C "$root" diff --quiet HEAD 2>/dev/null || echo "with changes that are not committed" >>"$out/commit.txt"
  echo "$command_line" >"$out/command.txt"
fi

if [ -z "$bin" ]; then
  build_binaries || { echo "gpu_check: there is nothing to run; see $out/build.log" >&2; exit 1; }
fi
# A folder of binaries, or a build folder.
megalith=$bin/megalith test_cuda=$bin/test_cuda
[ -x "$megalith" ] && [ ! -d "$megalith" ] || megalith=$bin/tools/megalith
[ -x "$test_cuda" ] || test_cuda=$bin/tests/test_cuda
if [ -z "$dry" ]; then
  for binary in "$megalith" "$test_cuda"; do
    [ -x "$binary" ] || { echo "gpu_check: there is no $binary (--bin DIR says where it is)" >&2; exit 1; }
  done
fi

gpu_state before
wants tests && step_tests
wants stream && step_stream
wants ours && step_ours
wants prompt && step_prompt
wants torch && step_torch
wants sanitize && step_sanitize
wants logits && step_logits
wants soak && step_soak
gpu_state after
[ -n "$dry" ] && exit 0
python3 "$root/tools/baselines/gpu_table.py" "$out" && echo "$out/result.md" || failed=1
exit "$failed"
