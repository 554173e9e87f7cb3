"""Checks `varve bench cpu --quick --json` on stdin: every kind of row is there, with sound figures and small errors."""
import json
import math
import sys

WANTED = {
    "": {"machine", "attention", "attention, cache resident", "attention error", "attention bytes",
         "attention bytes, cache resident", "screening", "decode", "time to first token", "decode beside a busy process",
         "sessions together", "quality"},
    "growth": {"screening", "growth"},
}
rows = json.load(sys.stdin)["rows"]
suites = {r["suite"] for r in rows}
wanted = WANTED[" ".join(sys.argv[1:])]
assert suites == wanted, suites ^ wanted
assert len({(r["suite"], r["case"]) for r in rows}) == len(rows), "a row twice"
for r in rows:
    # A least-squares slope over a few tokens may have either sign, and so may a divergence that rounds to nothing.
    if "per token of context" not in r["case"] and r["suite"] != "quality":
        assert r["ours"] is not None and math.isfinite(r["ours"]) and r["ours"] > 0, r
    if r["suite"] == "attention error":
        assert r["ours"] < 1e-3, r
    if r["suite"].startswith("attention") and "error" in r["details"]:
        for name, error in r["details"].items():
            assert error < (0.5 if "format" in name else 0.02), r
print("ok")
