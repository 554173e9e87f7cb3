#!/usr/bin/env python3
"""cpu_table.py BENCH.json...: documents of `varve bench cpu --json` as the Markdown tables of docs/performance.md."""
import json
import sys


def number(value):
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


rows = []
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        rows += json.load(file)["rows"]
for suite in dict.fromkeys(row["suite"] for row in rows):
    print(f"\n**{suite}**\n\n| row | ours | best peer | ratio | wanted |\n|---|---|---|---|---|")
    for row in (r for r in rows if r["suite"] == suite):
        peer = ""
        if row["peers"]:
            best = max if row["better"] == "higher" else min
            if suite.startswith("attention bytes"):
                best = min  # a bound is the lower of the ceilings
            name = best(row["peers"], key=row["peers"].get)
            peer = f"{number(row['peers'][name])} ({name})"
        ratio = f"{row['ratio']:.2f}x" if row["peers"] else ""
        wanted = f"{row['target']:g}x, {'met' if row['met'] else 'not met'}" if row["target"] is not None else ""
        print(f"| {row['case']} | {number(row['ours'])} {row['unit']} | {peer} | {ratio} | {wanted} |")
