#!/usr/bin/env bash
# Ten questions about one real document of 8K tokens, each asked of a fork: the dense cache, minima without measured
# attention, and with it, promoted pages read again or restored from a file. One table shows the answers, what was
# promoted and what it cost; a trace and its picture are kept.
#
# usage: examples/lifecycle.sh [MODEL [OUT]]   (a key of `varve pull --list` or a GGUF file; a directory)
set -euo pipefail
cd "$(dirname "$0")/.."

varve=build/release/bin/varve
model=${1:-qwen2.5-coder-0.5b}
out=${2:-build/lifecycle}
mkdir -p "$out"

path=$("$varve" pull "$model" | tail -1)
text=$("$varve" pull jargon | tail -1)

# The stories of appendix A and the beginning of appendix B. The line numbers are safe: the file is checked by SHA-256.
document="$out/hacker-folklore.txt"
sed -n '40401,41040p' "$text" >"$document"

ask() {
  local name=$1
  shift
  echo "== $name" >&2
  "$varve" run -m "$path" -f "$document" --questions examples/lifecycle_questions.txt -n 32 --temp 0 --json \
    --weight-gemm ggml "$@" \
    >"$out/$name.json" 2>"$out/$name.log"
}
ask dense --profile dense
ask scoring-off --profile minima --scoring off
ask recompute --profile minima --scoring on --restore recompute
ask disk --profile minima --scoring on --restore disk --trace "$out/trace.jsonl"
"$varve" inspect --trace "$out/trace.jsonl" --svg "$out/trace.svg" --html "$out/trace.html" >"$out/trace.txt"
python3 examples/lifecycle_table.py examples/lifecycle_answers.txt "$out"/{dense,scoring-off,recompute,disk}.json
echo "the picture: $out/trace.txt, $out/trace.svg, $out/trace.html"
