#!/usr/bin/env bash
# A real model reads a real document and answers a question about its old part, first with the dense f16 cache, then
# with the minima profile, and one table shows what each cost.
#
# usage: examples/demo.sh [MODEL]     (a key of `varve pull --list`, or a GGUF file)
# Exit code: 0 when both runs worked and minima kept what dense answered right; 1 when it did not; else varve's own.
set -euo pipefail
cd "$(dirname "$0")/.."

varve=build/release/bin/varve
model=${1:-qwen2.5-coder-0.5b}
question="What were the two positions of the switch labeled?"
expected="more magic"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "== fetching $model and the Jargon File"
path=$("$varve" pull "$model" | tail -1)
text=$("$varve" pull jargon | tail -1)

# The stories of appendix A, from "TV Typewriters" to "The Story of Mel". The answer is in the second of five, "A Story
# About Magic": most of what the model reads comes after it. The line numbers are safe: the file is checked by SHA-256.
document="$work/hacker-folklore.txt"
sed -n '40401,40917p' "$text" >"$document"
echo "== document: $document, $(wc -c <"$document") bytes"
echo "== question: $question"

for profile in dense minima; do
  echo
  echo "== profile $profile"
  "$varve" run -m "$path" -f "$document" -p "$question" -n 64 --temp 0 --profile "$profile" \
    --summary "$work/$profile.json"
done

echo
rc=0
python3 examples/demo_table.py --expect "$expected" "$work/dense.json" "$work/minima.json" || rc=$?

kept="${XDG_CACHE_HOME:-$HOME/.cache}/varve/texts/hacker-folklore.txt"
cp "$document" "$kept"
cat <<END

To try next:
  $varve chat -m $model --profile minima
  $varve run -m $model --profile minima -f $kept -p "Who cut the magic switch out of the computer?"
  $varve inspect -m $model
END
exit "$rc"
