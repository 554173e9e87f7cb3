"""Checks the document of `varve inspect --json --budget 8G --context 8K` on smollm2-135m against docs/json.md."""
import json
import sys

d = json.load(sys.stdin)
assert list(d) == ["model", "classes", "profiles", "budget_bytes", "k_bias_norms"], list(d)
assert d["model"]["dense_bytes_per_token"] == 2 * 30 * 3 * 64 * 2 and d["model"]["kv_layers"] == 30, d["model"]
assert d["budget_bytes"] == 8 << 30 and d["k_bias_norms"] == []
assert [c["window"] for c in d["classes"]] == [0] and d["classes"][0]["rope"]["pairing"] == "interleaved"
profiles = {p["name"]: p for p in d["profiles"]}
assert list(profiles)[:4] == ["dense", "fp8", "int8", "minima"], list(profiles)
for profile in profiles.values():
    at = profile["at"]["8192"]
    assert at["dense_bytes"] == 8192 * d["model"]["dense_bytes_per_token"]
    assert abs(at["ratio"] - at["dense_bytes"] / at["physical_bytes"]) < 1e-9
    assert at["sessions"] == (d["budget_bytes"] - at["resident_bytes"]) // at["physical_bytes"], profile
    assert at["resident_bytes"] >= d["model"]["file_bytes"]
assert 0.99 < profiles["dense"]["at"]["8192"]["ratio"] <= 1 < profiles["minima"]["at"]["8192"]["ratio"]
assert [t["tier"] for t in profiles["dense"]["tiers"]] == ["recent"]
print("ok")
