"""The commands of the guide to TrainJobs, as a reader types them; what is sent is printed instead."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/guides/trainjob.md").read_text()


def blocks(language):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == language]


def test_its_commands_work(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    (job,) = (block for block in blocks("yaml") if "kind: MPIJob" in block)
    Path("job.yaml").write_text(job)
    ran = 0
    for line in (line[2:] for block in blocks("console") for line in block.splitlines()):
        words = shlex.split(line)
        if words[0] == "kubectl":
            assert (ROOT / words[-1] / "kustomization.yaml").is_file()
            continue
        assert words.pop(0) == "ringleader"
        dry = ["--dry-run"] if "submit" in words else []
        at = words.index("--") if "--" in words else len(words)
        code, out, err = call(*words[:at], *dry, *words[at:])
        assert code == 0, err
        kinds = [one["kind"] for one in yaml.safe_load_all(out)]
        assert kinds == (["TrainJob"] if "--runtime" in words else ["TrainingRuntime", "TrainJob"])
        if words == ["render", "trainjob", "job.yaml"]:
            (said,) = [text for text in blocks("") if text.startswith("job.yaml:1")]
            assert err == said
        ran += 1
    assert ran == 7


def test_its_messages_are_ours():
    sources = "".join(path.read_text() for path in (ROOT / "src/ringleader/kubernetes").rglob("*.py"))
    for words in ("there is no runtime of this name", "Kubeflow Trainer has made no Pods"):
        assert words in sources and words in GUIDE
