#!/usr/bin/env bash
# tools/gpu_check.sh without a GPU: what it would do, and what it makes of programs that do well, fail, and hang.
set -u -o pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
check=$root/tools/gpu_check.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1

problems=0
expect() { # expect WHAT FILE PATTERN
  grep -q -- "$3" "$2" && return
  echo "FAILED: $1: no \"$3\" in:"
  sed 's/^/    /' "$2"
  problems=$((problems + 1))
}
expect_code() { # expect_code WHAT WANTED FOUND
  [ "$2" = "$3" ] || { echo "FAILED: $1: exit code $3, want $2"; problems=$((problems + 1)); }
}

# ---- the pieces on their own
command -v shellcheck >/dev/null && { shellcheck "$check" "$0" || problems=$((problems + 1)); }
python3 "$root/tests/gpu_check/table_test.py" 2>"$work/table.log" || { cat "$work/table.log"; problems=$((problems + 1)); }
for script in tools/baselines/torch_decode.py tools/baselines/torch_prompt.py tools/gpu_logits.py; do
  python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$root/$script" || problems=$((problems + 1))
done

# ---- usage
"$check" 2>"$work/usage"
expect_code "no --out" 2 $?
expect "usage" "$work/usage" "--out DIR"
"$check" --out "$work/x" --steps tests,dance 2>"$work/step"
expect_code "an unknown step" 2 $?
expect "an unknown step" "$work/step" 'there is no step "dance"'
"$check" --out "$work/x" --bin /nowhere 2>"$work/bin" >/dev/null
expect_code "no binaries" 1 $?
expect "no binaries" "$work/bin" "there is no /nowhere/tools/megalith"

# ---- a dry run names every step and starts none
"$check" --out "$work/dry" --bin /nowhere --dry-run >"$work/plan"
expect_code "a dry run" 0 $?
[ ! -e "$work/dry" ] || { echo "FAILED: a dry run made $work/dry"; problems=$((problems + 1)); }
for step in tests stream_build stream ours_Qwen3-0.6B_b1_c512 ours_Llama-3.2-1B_b1_c512 ours_Qwen3-8B_b1_c512 \
  ours_Qwen3-8B_b1_c4096 ours_Qwen3-8B_b8_c512 ours_Qwen3-8B_b64_c512 prompt_torch prompt_Qwen3-0.6B prompt_Qwen3-8B torch memcheck_model racecheck_prompt racecheck_partners racecheck_operators; do
  expect "a dry run" "$work/plan" "^$step "
done
"$check" --out "$work/dry" --bin /nowhere --dry-run --steps logits,soak >"$work/plan"
for step in logits soak_storyteller soak_Qwen3-0.6B soak_64_texts; do expect "steps that are named" "$work/plan" "^$step "; done
"$check" --out "$work/dry" --dry-run --steps tests >"$work/plan"
expect "without --bin" "$work/plan" "^build .*cmake --preset release"

# ---- stand-ins for all programs: the tests fail, one case hangs, the rest does well
mkdir "$work/bin_of"
program() { # program NAME, its text on stdin
  { echo '#!/bin/sh'; cat; } >"$work/bin_of/$1"
  chmod +x "$work/bin_of/$1"
}
program test_cuda <<<'echo "a test failed"; exit 1'
program nvidia-smi <<<'echo "Some GPU, 580"'
program compute-sanitizer <<<'exit 0'
program nvcc <<'E2'
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\necho "{\\"median_gbs\\": 4000.0}"\n' >"$2"
chmod +x "$2"
E2
program megalith <<'E2'
case "$*" in *Qwen3-8B*"--max-batch 8 "*) sleep 100 ;; esac
echo '[{"median_ms": 2.0, "bytes_per_token": 4000000000}]'
E2
PATH=$work/bin_of:$PATH "$check" --out "$work/out" --bin "$work/bin_of" --steps tests,stream,ours,sanitize --budget 12 \
  >"$work/log" 2>&1
expect_code "a run with failures" 1 $?
result=$work/out/result.md
expect "a failed test" "$work/log" "a test failed"
expect "a failed test" "$result" "| tests | [0-9]* | exit 1 |"
expect "a figure" "$result" "| Qwen3-0.6B | 1 | 512 | 4.00 | 2.000 | 50.0% |"
expect "a case that hangs" "$result" "| ours_Qwen3-8B_b8_c512 | [0-9]* | out of time |"
expect "no time left" "$result" "| racecheck_operators | 0 | skipped: no time left |"
expect "the card" "$result" "    Some GPU, 580"

[ "$problems" = 0 ] && echo "gpu_check: all well"
[ "$problems" = 0 ]
