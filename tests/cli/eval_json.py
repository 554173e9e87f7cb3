"""Checks what `varve eval` left in the directories named: documented keys, the control, one line for each answer."""
import json
import pathlib
import sys

ARM = {"arm", "length", "n", "items", "kld_mean", "kld_median", "kld_p99", "kld_p999", "kld_max", "kld_lo", "kld_hi",
       "same_top1", "ppl", "ppl_ratio", "bytes_per_token", "ratio", "payload_bytes_per_token",
       "metadata_bytes_per_token", "scratch_bytes_per_token", "allocated_bytes_per_token", "peer_kld_mean",
       "peer_same_top1", "mode", "profile_digest", "strata", "fallbacks"}
TASK = {"task", "length", "arm", "n", "groups", "shortened", "score", "dense_score", "delta", "lo", "hi", "interval", "wins",
        "losses", "mcnemar_p", "discriminative", "shows"}
TOP = {"model", "suite", "mode", "seed", "arms", "tasks", "model_digest", "command", "run", "build", "machine"}
LINE = {"id", "task", "group", "length", "arm", "mode", "profile_digest", "model_digest", "prompt_sha256",
        "prompt_tokens", "dropped_tokens", "score", "answer", "references", "depths", "divergence", "kv", "context_tokens", "fallbacks",
        "seconds"}

for name in sys.argv[1:]:
    directory = pathlib.Path(name)
    files = sorted(p.name for p in directory.iterdir())
    assert files == ["eval.json", "items.jsonl", "report.html", "summary.json"], files
    summary = json.loads((directory / "summary.json").read_text())
    assert set(summary) == TOP, set(summary) ^ TOP
    for arm in summary["arms"]:
        assert set(arm) == ARM, set(arm) ^ ARM
        if arm["arm"] in ("dense", "dense2"):
            assert arm["kld_max"] == 0 and arm["same_top1"] == 1, arm
        else:
            assert arm["kld_mean"] > 0 and arm["n"] > 0, arm
        assert arm["ratio"] > 0.5 and arm["bytes_per_token"] > 0, arm
    for task in summary["tasks"]:
        assert set(task) == TASK, set(task) ^ TASK
        assert task["lo"] <= task["delta"] <= task["hi"], task
    assert (summary["suite"] == "kld") == (not summary["tasks"]), summary["tasks"]
    lines = [json.loads(line) for line in (directory / "items.jsonl").read_text().splitlines()]
    assert all(LINE <= set(line) for line in lines), [LINE - set(line) for line in lines]
    pairs = {(line["id"], line["arm"]) for line in lines}
    assert len(pairs) == len(lines), "an answer was stored twice"
    assert len(pairs) == sum(arm["items"] for arm in summary["arms"])
    page = (directory / "report.html").read_text()
    assert "<svg" in page and page.rstrip().endswith("</html>")
print("ok")
