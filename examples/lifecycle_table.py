#!/usr/bin/env python3
"""lifecycle_table.py ANSWERS RUN.json...: answers of `varve run --questions --json` side by side.

ANSWERS holds one phrase a line, in the order of the questions; an answer is right when it has the phrase. The first run
is the one that the others are compared with.
"""
import json
import os
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    expected = [line.rstrip("\n") for line in file if line.strip()]
arms = []
for path in sys.argv[2:]:
    with open(path, encoding="utf-8") as file:
        arms.append((os.path.basename(path).removesuffix(".json"), json.load(file)))

for i, phrase in enumerate(expected):
    print(f"{i + 1}. {arms[0][1][i]['question']}  [{phrase}]")
    for name, runs in arms:
        answer = " ".join(runs[i]["answer"].split())
        mark = "right" if phrase.lower() in answer.lower() else "wrong"
        promoted = sum(runs[i]["promotions"].values()) - (sum(runs[i - 1]["promotions"].values()) if i else 0)
        print(f"   {name:12} {mark:5} {f'{promoted} promoted' if promoted else '':12} {answer[:110]}")

print(f"\n{'':28}" + "".join(f"{name:>14}" for name, _ in arms))


def row(label, cell):
    print(f"{label:28}" + "".join(f"{cell(runs):>14}" for _, runs in arms))


def right(runs):
    return sum(phrase.lower() in run["answer"].lower() for phrase, run in zip(expected, runs))


first = arms[0][1]
row("right answers", lambda runs: f"{right(runs)} of {len(expected)}")
row("same answer as " + arms[0][0], lambda runs: str(sum(a["answer"] == b["answer"] for a, b in zip(first, runs))))
row("pages promoted", lambda runs: str(sum(runs[-1]["promotions"].values())))
row("tokens read again", lambda runs: str(runs[-1]["recomputed_tokens"]))
row("kept aside", lambda runs: f"{runs[-1]['refinement_bytes'] / 2**20:.1f} MiB")
row("KV ratio, last question", lambda runs: f"{runs[-1]['kv']['ratio']:.2f}x")
row("decode, median tok/s", lambda runs: f"{sorted(r['decode_tok_s'] for r in runs)[len(runs) // 2]:.1f}")
row("worst token, ms", lambda runs: f"{max(r['worst_token_s'] for r in runs) * 1e3:.0f}")
row("first token, median s", lambda runs: f"{sorted(r['ttft_s'] for r in runs[1:])[len(runs) // 2 - 1]:.2f}")
