#!/usr/bin/env python3
"""demo_table_test.py DEMO_TABLE: the table shows every number, and its exit code says whether an answer was lost."""
import json
import os
import subprocess
import sys
import tempfile


def run(profile, answer, tiers, fallbacks):
    return {"answer": answer, "prompt_tokens": 6600, "profile": profile, "transitions": 3, "ttft_s": 12.34,
            "decode_tok_s": 7.89, "fallbacks": fallbacks,
            "kv": {"dense_bytes": 80 << 20, "physical_bytes": 20 << 20, "payload_bytes": 17 << 20,
                   "metadata_bytes": 2 << 20, "scratch_bytes": 1 << 20, "ratio": 4.0,
                   "tiers": [{"tier": t, "format": f, "pages": 1, "tokens": n, "bytes": b} for t, f, n, b in tiers]}}


def table(*runs):
    with tempfile.TemporaryDirectory() as directory:
        names = []
        for i, one in enumerate(runs):
            names.append(os.path.join(directory, f"{i}.json"))
            with open(names[-1], "w", encoding="utf-8") as file:
                json.dump(one, file)
        return subprocess.run([sys.executable, sys.argv[1], "--expect", "TV typewriter", *names],
                              capture_output=True, text=True)


dense = run("dense", "A TV Typewriter.", [("recent", "f16", 6600, 80 << 20)], {})
good = run("minima", "a tv typewriter", [("recent", "fp8", 600, 4 << 20), ("stale1", "k4v3", 6000, 16 << 20)],
           {"no_kernel": 2})
lost = dict(good, answer="a radio")

both = table(dense, good)
assert both.returncode == 0, both
for words in ("6600 f16", "600 fp8", "6000 k4v3", "16.00 MiB", "17.00 MiB", "2.00 MiB", "1.00 MiB", "80.00 MiB", "4.00x",
              "12.3 s", "7.9 tok/s", "no_kernel: 2", "none"):
    assert words in both.stdout, (words, both.stdout)
worse = table(dense, lost)
assert worse.returncode == 1 and "dense" in worse.stderr, worse
assert table(dict(dense, answer="a radio"), lost).returncode == 0, "a question that dense misses says nothing of minima"
