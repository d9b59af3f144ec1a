"""The tutorial's page for two machines: its commands, in the lab that it names, print what it shows."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import blocks, commands, text_of

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.torch, pytest.mark.long, pytest.mark.timeout(900)]
PAGE = "docs/tutorial/two-machines.md"
UP = "ringleader lab up --hosts 2 --slots 1"


def test_the_commands_of_the_page_work_in_a_lab(
    ringleader: Any, scratch_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--lab` instead of `-H …`, as the page has it; without RDMA, `--require rdma` refuses to start."""
    assert f"`{UP}`" in text_of(PAGE) and "`--lab` instead of `-H …`" in text_of(PAGE)
    ((_, script),) = blocks("docs/tutorial/first-report.md", "python")
    (tmp_path / "train.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    done = ringleader(*UP.split()[1:], "--name", scratch_name, "--ssh-port", "38")
    assert done.returncode == 0, done.stderr
    shown = commands(PAGE)
    assert [words[1] for words in shown] == ["run", "run", "run", "doctor", "bench", "scale"]
    printed = ""
    for _, *words in shown:
        at = words.index("-H")
        words[at : at + 2] = ["--lab", f"--lab-name={scratch_name}"]
        words[at:at] = {"scale": ["--repeats", "1"]}.get(words[0], [])
        done = ringleader(*words, timeout=400)
        codes = (3,) if "--require" in words else (0, 3) if words[0] == "doctor" else (0,)
        assert done.returncode in codes, f"{words}\n{done.stdout}\n{done.stderr}"
        if words[0] == "run" and "--dry-run" not in words:
            printed += done.stderr
        if words[0] == "scale":
            assert re.search(r"^2×1 +2 ", done.stdout, re.MULTILINE), done.stdout
    assert "has no RDMA device" in printed
    for line in re.findall(r"^ringleader: (node\d.*)$", text_of(PAGE), re.MULTILINE):
        # How many bytes were exchanged, and as how much of it the counters' share is named, varies a little.
        named = re.escape(line.replace("node", f"{scratch_name}-h", 1))
        pattern = re.sub(r"\d+(\\\.\d+)?\\ MiB", r"[\\d.]+ MiB", named)
        pattern = re.sub(r"\\ to\\ (\[\S+ MiB)$", r"(\\ to\\ \1)?", pattern)  # one number where all are alike
        assert re.search(pattern, printed), f"{pattern}\n{printed}"
