"""Two documents of `varve run --json`, without and with drafts: the same answer in fewer steps."""
import json
import sys

plain, fast = (json.load(open(path)) for path in sys.argv[1:3])
assert plain["speculation"] is None, plain["speculation"]
s = fast["speculation"]
assert fast["answer"] == plain["answer"], (plain["answer"], fast["answer"])
assert fast["generated_tokens"] == plain["generated_tokens"]
assert s["drafter"] == "lookup" and 0 < s["accepted"] <= s["drafted"], s
assert abs(s["acceptance"] - s["accepted"] / s["drafted"]) < 1e-9, s
assert s["steps"] + s["accepted"] + 1 - fast["generated_tokens"] in (0, 1), s
assert s["steps"] < plain["generated_tokens"] - 1, s
assert s["draft_kv_bytes"] == 0 and s["draft_s"] >= 0, s
print("ok")
