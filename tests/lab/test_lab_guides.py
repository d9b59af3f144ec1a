"""Pages whose commands run in a lab as a reader types them (README, guides): what they show is printed."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]
SHORTER = {
    r"--seconds \d+": "--seconds 1", r"--repeats \d+": "--repeats 1", r"--steps \d+": "--steps 2",
    r"--epochs \d+": "--epochs 1", r"-e 16M": "-e 256K", r"-e 4M": "-e 64K",
    r"1x1,1x2,2x1": "1x1,2x1 --no-uncoupled", r"python examples": "python " + str(ROOT / "examples"),
}  # fmt: skip
"""What makes the commands short enough for a test."""


def page(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def in_lab(words: list[str], name: str, *more: str) -> list[str]:
    """A command of a page, in a lab of this name."""
    if words[0] == "lab":
        return [*words, "--lab-name", name, "--ssh-port", "37"]
    place = words.index("--lab") + 1 if "--lab" in words else len(words)
    return [*words[:place], *([f"--lab-name={name}", *more] if "--lab" in words else ()), *words[place:]]


@pytest.mark.parametrize("path", ["README.md", "docs/guides/is-my-job-on-rdma.md"])
def test_which_transport_carried_a_job_is_printed_as_shown(
    path: str, ringleader: Any, scratch_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn" if path == "README.md" else "torch")
    monkeypatch.chdir(ROOT)
    text, script = page(path), tmp_path / "train.py"
    if path != "README.md":
        (body,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        script.write_text(body)
        text = text.replace("train.py", str(script))
    commands = [line.split() for line in re.findall(r"^# ringleader (.*)$", text, re.MULTILINE)]
    shown = re.findall(r"^ringleader: (h\d.*)$", text, re.MULTILINE)
    assert [words[0] for words in commands] == ["lab", "run", "run"] and shown
    done = [ringleader(*in_lab(words, scratch_name, "--threads=1"), timeout=400) for words in commands]
    printed = "".join(one.stderr for one in done)
    assert [one.returncode for one in done] == [0, 0, 3], printed
    for line in shown:
        # How many bytes were exchanged, and as how much of it the counters' share is named, varies a little.
        escaped = re.escape(line.replace("h", f"{scratch_name}-h", 1))
        pattern = re.sub(r"\d+(\\\.\d+)?\\ MiB|1\\\.0\d", r"[\\d. MiB]+", escaped)
        assert re.search(pattern, printed), f"{pattern}\n{printed}"


def test_the_commands_of_how_close_to_linear(
    ringleader: Any, scratch_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    text = page("docs/guides/how-close-to-linear.md")
    commands = re.findall(r"^[#$] ringleader (.*)$", text, re.MULTILINE)
    assert len(commands) == 11
    for command in commands:
        for long, short in SHORTER.items():
            command = re.sub(long, short, command)
        words = in_lab(command.replace(" --lab-name guide", "").split(), scratch_name)
        if "runs/scale-after" in words:
            shutil.copytree("runs/scale", "runs/scale-after")
        done = ringleader(*words, timeout=240)
        # What doctor finds depends on the machine.
        assert done.returncode in ((0, 3) if words[0] == "doctor" else (0,)), f"{command}\n{done.stderr}"
        assert done.stdout or words[0] == "lab" or "-o" in words, command
    kept = {path.parent.name for path in Path("runs").glob("*/run.json")}
    assert kept == {"p2p", "allreduce", "train", "scale", "scale-after"}
    assert Path("page.html").stat().st_size > 10_000
