#!/usr/bin/env python3
"""growth_figure.py GROWTH.json: the document of `varve bench cpu --growth --json` as a figure (SVG on stdout).

Milliseconds of one decode step against the context, one line a contender.
"""
import json
import re
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    rows = json.load(file)["rows"]

lines = {}  # name -> [(context, ms)]
for row in rows:
    match = re.fullmatch(r"(.*) decode step at (\d+)", row["case"])
    if not match:
        continue
    lines.setdefault(match[1], []).append((int(match[2]), row["ours"]))
    if match[1] == "varve dense":  # each of our rows names the same peers
        for name, ms in row["peers"].items():
            lines.setdefault(name, []).append((int(match[2]), ms))

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 360, 56, 24, 250, 48
COLOURS = ["#1b6ca8", "#2a9d4e", "#d95f02", "#888888", "#7b3fa0"]
most = max(context for line in lines.values() for context, _ in line)
top = max(ms for line in lines.values() for _, ms in line)
step = next(s for e in range(-3, 5) for s in (10**e, 2 * 10**e, 5 * 10**e) if top / s <= 6)


def x(context):
    return LEFT + (WIDTH - LEFT - RIGHT) * context / most


def y(ms):
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * ms / top


out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
       f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
for tick in range(int(top / step) + 1):
    at = y(tick * step)
    out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#dddddd"/>')
    out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{tick * step:g}</text>')
for context in sorted({context for line in lines.values() for context, _ in line if context * 12 >= most}):
    out.append(f'<text x="{x(context):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{context}</text>')
out.append(f'<text x="{LEFT}" y="14">ms for one token</text>')
out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">tokens of context</text>')
labels = []
for i, (name, line) in sorted(enumerate(lines.items()), key=lambda entry: entry[1][1][-1][1]):
    colour = COLOURS[i % len(COLOURS)]
    points = " ".join(f"{x(context):.1f},{y(ms):.1f}" for context, ms in line)
    out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
    at = min(y(line[-1][1]) + 4, labels[-1] - 15) if labels else y(line[-1][1]) + 4
    labels.append(at)
    out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{at:.1f}" fill="{colour}">{name}</text>')
out.append("</svg>")
print("\n".join(out))
