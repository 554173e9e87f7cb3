"""Checks `varve bench profile --json` on stdin: the parts are all there and sum to the step."""
import json
import sys

document = json.load(sys.stdin)
for phase in ("decode", "prefill"):
    p = document[phase]
    parts = p["parts_s"]
    assert p["steps"] > 0, phase
    assert abs(sum(parts.values()) - p["step_s"]) < 1e-9 * p["step_s"] + 1e-12, phase
    for key in ("weights", "append", "partial", "merge", "other_nodes", "plan", "sampling"):
        assert parts[key] > 0, (phase, key)
    assert len(p["threads"]) == document["threads"], phase
    for thread in p["threads"]:
        assert thread["partial_s"] <= parts["partial"], phase  # busy inside what the step counts
print("ok")
