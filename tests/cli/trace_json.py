"""Checks the document of `varve inspect --trace t.jsonl --json` on the trace of make_trace.py against docs/json.md."""
import json
import sys

d = json.load(sys.stdin)
assert list(d) == ["trace", "events", "first_step", "last_step", "sessions", "bytes", "moves", "promotions", "slowest",
                   "refused", "notes"], list(d)
assert d["trace"] == {"file": "t.jsonl", "header": True, "model": "made <up> & small", "profile": "minima",
                      "page_tokens": 128, "recent_tokens": 256,
                      "tiers": {"recent": "int8", "anchor": "int8", "stale1": "k4v3"}}, d["trace"]
assert [(s["session"], s["window"], s["tokens"]) for s in d["sessions"]] == [(1, 0, 4096), (2, 0, 1152), (2, 512, 1024)]
assert sum(s["events"] for s in d["sessions"]) == d["events"]
assert sum(m["published"] + m["abandoned"] + m["refused"] for m in d["moves"]) == d["events"]
moves = {(m["from"], m["to"], m["why"], m["how"]): m for m in d["moves"]}
assert moves["recent", "stale1", "age", "convert"]["published"] == 29
assert moves["recent", "stale1", "age", "convert"]["bytes"] == 29 * 300000
assert moves["", "stale1", "hit", "reference"] == {"from": "", "to": "stale1", "why": "hit", "how": "reference",
                                                   "published": 5, "abandoned": 0, "refused": 0, "bytes": 0,
                                                   "us_max": 0}
first = d["promotions"].pop("first")
assert d["promotions"] == {"published": 2, "lossy": 1, "bytes": 1600000}, d["promotions"]
assert [(p["step"], p["page_start"], p["how"], p["score"]) for p in first] == [(110, 256, "restore", 0.31),
                                                                              (120, 384, "lossy", 0.2)], first
assert d["slowest"]["us"] == 900.25 and d["slowest"]["step"] == 110 and d["slowest"]["how"] == "restore"
assert d["refused"] == {"no_room": 1} and d["notes"] == []
# At the end: page 0, 2, 3 as anchors, and of session 1 pages 30 and 31, of session 2 page 8 and seven of its window.
bytes_at_end = {tier: values[-1] for tier, values in d["bytes"].items()}
assert bytes_at_end == {"step": d["last_step"], "recent": 10 * 800000, "anchor": 3 * 800000,
                        "stale1": (32 - 3 - 2) * 300000, "stale2": 0}, bytes_at_end
assert len({len(values) for values in d["bytes"].values()}) == 1
print("ok")
