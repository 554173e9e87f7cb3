"""Writes a lifecycle trace like the ones of `varve run --trace`, made up: make_trace.py [--lines N] [--old] > t.jsonl

Session 1 reads a document in chunks of four pages a step and decodes; its old pages go stale, the first one is kept as
an anchor, and half-way page 2 is promoted. Session 2 hits the prefix of session 1, in a full and a sliding class.
--old: without header line and without the keys that traces once lacked. --lines: at least so many lines, in one session of a sliding class that keeps 64 pages.
"""
import argparse
import json
import sys

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lines", type=int, default=0)
parser.add_argument("--old", action="store_true")
args = parser.parse_args()

PAGE, RECENT, PAGES, WINDOW, KEPT = 128, 2, 32, 512, 64
BYTES = {"": 0, "recent": 800000, "anchor": 800000, "stale1": 300000}
written = 0


def write(line):
    global written
    written += 1
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")


def event(step, session, page, start, source, to, why, how, window=0, outcome="published", us=0.0, score=0.0):
    line = {"step": step, "session": session, "page": page, "page_start": start, "window": window, "from": source,
            "to": to, "why": why, "how": how, "outcome": outcome, "score": score, "from_bytes": BYTES[source],
            "to_bytes": BYTES[to], "us": us}
    if args.old:
        if not (source and to):
            return  # only moves between tiers were written
        line = {k: v for k, v in line.items() if k not in ("session", "page", "how", "score")}
    write(line)


if not args.old:
    write({"varve_trace": 1, "model": "made <up> & small", "profile": "minima", "page_tokens": PAGE,
           "recent_tokens": RECENT * PAGE, "tiers": {"recent": "int8", "anchor": "int8", "stale1": "k4v3"}})

step, page = 0, 0
tiers = {}
while page < PAGES or written < args.lines:
    step += 1
    for _ in range(4):
        tiers[page] = "recent"
        event(step, 1, 100 + page, page * PAGE, "", "recent", "sealed", "append")
        old = page - RECENT
        if old == 0:
            event(step, 1, 100, 0, "recent", "anchor", "sink", "copy", us=12.5)
            tiers[0] = "anchor"
        elif old > 0:
            event(step, 1, 100 + old, old * PAGE, "recent", "stale1", "age", "convert", us=150.0 + old)
            tiers[old] = "stale1"
        if args.lines and page >= KEPT:
            gone = page - KEPT
            event(step, 1, 100 + gone, gone * PAGE, tiers.pop(gone), "", "window", "release")
        page += 1
for step in range(step + 1, step + 200):
    if step == 100 and not args.lines:
        event(step, 1, 102, 2 * PAGE, "stale1", "anchor", "no_room", "restore", outcome="refused")
    if step == 110 and not args.lines:
        event(step, 1, 102, 2 * PAGE, "stale1", "anchor", "score", "restore", us=900.25, score=0.31)
        tiers[2] = "anchor"
    if step == 120 and not args.lines:
        event(step, 1, 103, 3 * PAGE, "stale1", "anchor", "score", "lossy", us=400.0, score=0.2)
        tiers[3] = "anchor"
    if step == 130 and not args.lines:
        for p in range(8):
            event(step, 2, 100 + p, p * PAGE, "", tiers[p], "hit", "reference")
            event(step, 2, 500 + p, p * PAGE, "", "recent", "sealed", "append", window=WINDOW)
    if step == 140 and not args.lines:
        event(step, 2, 208, 8 * PAGE, "", "recent", "sealed", "append")
        event(step, 2, 500, 0, "recent", "", "window", "release", window=WINDOW)
        event(step, 2, 507, 7 * PAGE, "recent", "stale1", "age", "convert", window=WINDOW, outcome="abandoned")
if not args.lines:
    for p in range(8):  # session 2 keeps them
        event(step, 1, 100 + p, p * PAGE, tiers[p], "", "finished", "release")
