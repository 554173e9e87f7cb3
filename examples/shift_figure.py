#!/usr/bin/env python3
"""shift_figure.py BENCH.json: the document of `varve bench lifecycle --json` as a figure (SVG on stdout).

Cumulative KL against the dense cache over the tokens after attention returned to an old page, one line an arm; a dot
marks where that page was promoted. Arms with equal lines are drawn once.
"""
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    arms = json.load(file)["shift"]["arms"]

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 360, 70, 24, 170, 48
COLOURS = ["#888888", "#d95f02", "#1b6ca8", "#2a9d4e", "#7b3fa0"]

lines = []  # (names, cumulative, promoted_at)
for arm in arms:
    total, cumulative = 0.0, []
    for kl in arm["kl"]:
        total += kl
        cumulative.append(total)
    same = next((line for line in lines if line[1] == cumulative), None)
    if same:
        same[0].append(arm["arm"])
    else:
        lines.append(([arm["arm"]], cumulative, arm["promoted_at"]))

tokens = max(len(line[1]) for line in lines)
top = max(line[1][-1] for line in lines) or 1.0
step = next(s for e in range(-6, 3) for s in (10**e, 2 * 10**e, 5 * 10**e) if top / s <= 6)


def x(token):
    return LEFT + (WIDTH - LEFT - RIGHT) * (token + 1) / tokens


def y(kl):
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * kl / top


out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
       f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
tick = 0
while tick * step <= top:
    at = y(tick * step)
    out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#dddddd"/>')
    out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{tick * step:.4g}</text>')
    tick += 1
for token in range(0, tokens + 1, 32):
    out.append(f'<text x="{x(token - 1):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{token}</text>')
out.append(f'<text x="{LEFT}" y="14">cumulative KL to dense, nats</text>')
out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
           'tokens after attention returned</text>')
ends = []
for i, (names, cumulative, promoted) in sorted(enumerate(lines), key=lambda entry: entry[1][1][-1]):
    colour = COLOURS[i % len(COLOURS)]
    points = " ".join(f"{x(t):.1f},{y(kl):.1f}" for t, kl in enumerate(cumulative))
    out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
    if promoted is not None:
        out.append(f'<circle cx="{x(promoted):.1f}" cy="{y(cumulative[promoted]):.1f}" r="4" fill="{colour}"/>')
    at = min(y(cumulative[-1]) + 4, ends[-1] - 15) if ends else y(cumulative[-1]) + 4
    ends.append(at)
    out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{at:.1f}" fill="{colour}">{", ".join(names)}</text>')
out.append("</svg>")
print("\n".join(out))
