#!/usr/bin/env python3
"""demo_table.py [--expect PHRASE] RUN.json...: run summaries of `varve run` side by side (keys: docs/json.md).

With --expect, exits with 1 when the first run's answer has the phrase and a later one's does not.
"""
import argparse
import json
import sys


def mib(n):
    return f"{n / 2**20:.2f} MiB"


def fallbacks(run):
    counts = run["fallbacks"]
    return ", ".join(f"{reason}: {count}" for reason, count in sorted(counts.items())) or "none"


def rows(runs):
    """(label, one cell per run); a label without cells is a heading."""
    names = []
    for run in runs:
        for tier in run["kv"]["tiers"]:
            if tier["tier"] not in names:
                names.append(tier["tier"])

    def cell(run, name, render):
        found = [tier for tier in run["kv"]["tiers"] if tier["tier"] == name]
        return ", ".join(render(tier) for tier in found) or "-"

    yield "prompt tokens", [str(run["prompt_tokens"]) for run in runs]
    yield "tokens by tier", None
    for name in names:
        yield "  " + name, [cell(run, name, lambda t: f"{t['tokens']} {t['format']}") for run in runs]
    yield "physical bytes by tier", None
    for name in names:
        yield "  " + name, [cell(run, name, lambda t: mib(t["bytes"])) for run in runs]
    yield "physical bytes by kind", None
    for kind in ("payload", "metadata", "scratch"):
        yield "  " + kind, [mib(run["kv"][kind + "_bytes"]) for run in runs]
    yield "physical bytes", [mib(run["kv"]["physical_bytes"]) for run in runs]
    yield "dense f16 cache would be", [mib(run["kv"]["dense_bytes"]) for run in runs]
    yield "ratio", [f"{run['kv']['ratio']:.2f}x" for run in runs]
    yield "pages moved", [str(run["transitions"]) for run in runs]
    yield "time to first token", [f"{run['ttft_s']:.1f} s" for run in runs]
    yield "decode", [f"{run['decode_tok_s']:.1f} tok/s" for run in runs]
    yield "fallbacks", [fallbacks(run) for run in runs]


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--expect", default="")
parser.add_argument("runs", nargs="+")
args = parser.parse_args()
runs = []
for name in args.runs:
    with open(name, encoding="utf-8") as file:
        runs.append(json.load(file))

table = [("", [run["profile"] for run in runs])] + list(rows(runs))
found = [args.expect.lower() in run["answer"].lower() for run in runs]
if args.expect:
    table.append((f"answer has '{args.expect}'", ["yes" if yes else "no" for yes in found]))
first = max(len(label) for label, _ in table)
widths = [max(len(cells[i]) for _, cells in table if cells) for i in range(len(runs))]
for i, (label, cells) in enumerate(table):
    print("  ".join([label.ljust(first)] + [c.rjust(w) for c, w in zip(cells or [], widths)]).rstrip())
    if i == 0:
        print("-" * (first + sum(w + 2 for w in widths)))
if args.expect and found[0] and not all(found):
    print(f"\nthe answer of {runs[0]['profile']} has '{args.expect}', and not every other one does", file=sys.stderr)
    sys.exit(1)
