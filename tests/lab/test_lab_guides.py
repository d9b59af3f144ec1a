"""Pages whose commands run in a lab as a reader types them (README, guides): what they show is printed."""

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import FENCE, ROOT, blocks, commands, text_of

from ringleader.bench.run_file import read_any

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(600)]
SHORTER = {
    r"--seconds \d+": "--seconds 1", r"--repeats \d+": "--repeats 1", r"--steps \d+": "--steps 2",
    r"--epochs \d+": "--epochs 1", r"-e 16M": "-e 256K", r"-e 4M": "-e 64K",
    r"1x1,1x2,2x1": "1x1,2x1 --no-uncoupled", r"python examples": "python " + str(ROOT / "examples"),
}  # fmt: skip
"""What makes the commands short enough for a test."""


def in_lab(words: list[str], name: str, *more: str) -> list[str]:
    """A command of a page, in a lab of this name."""
    if words[0] == "lab":
        return [*words, "--lab-name", name, "--ssh-port", "37"]
    place = words.index("--lab") + 1 if "--lab" in words else len(words)
    return [*words[:place], *([f"--lab-name={name}", *more] if "--lab" in words else ()), *words[place:]]


def is_printed(line: str, host: str, name: str, printed: str) -> None:
    """Compare a line of a page; how many bytes were exchanged, and how they are named, varies a little."""
    escaped = re.escape(line.replace(host, f"{name}-h", 1))
    pattern = re.sub(r"\d+(\\\.\d+)?\\ MiB|1\\\.0\d", r"[\\d. MiB]+", escaped)
    last = r"\ to\ [\d. MiB]+"  # one number where all are alike
    pattern = f"{pattern.removesuffix(last)}({last})?" if pattern.endswith(last) else pattern
    assert re.search(pattern, printed), f"{pattern}\n{printed}"


@pytest.mark.parametrize("path", ["README.md", "docs/guides/is-my-job-on-rdma.md"])
def test_which_transport_carried_a_job_is_printed_as_shown(
    path: str, ringleader: Any, scratch_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn" if path == "README.md" else "torch")
    monkeypatch.chdir(ROOT)
    text, script = text_of(path), tmp_path / "train.py"
    if path != "README.md":
        script.write_text(blocks(path, "python")[0][1])
        text = text.replace("train.py", str(script))
    lines = [line.split() for line in re.findall(r"^# ringleader (.*)$", text, re.MULTILINE)]
    shown = re.findall(r"^ringleader: (h\d.*)$", text, re.MULTILINE)
    assert [words[0] for words in lines] == ["lab", "run", "run"] and shown
    done = [ringleader(*in_lab(words, scratch_name, "--threads=1"), timeout=400) for words in lines]
    printed = "".join(one.stderr for one in done)
    assert [one.returncode for one in done] == [0, 0, 3], printed
    for line in shown:
        is_printed(line, "h", scratch_name, printed)


def test_the_commands_of_how_close_to_linear(
    ringleader: Any, scratch_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^[#$] ringleader (.*)$", text_of("docs/guides/how-close-to-linear.md"), re.MULTILINE)
    assert len(lines) == 11
    for command in lines:
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


PAGE = "docs/tutorial/two-machines.md"
UP = "ringleader lab up --hosts 2 --slots 1"


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_the_tutorial_for_two_machines_works_in_a_lab(
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
        is_printed(line, "node", scratch_name, printed)


def test_the_commands_of_the_gate(
    ringleader: Any, scratch_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = "docs/guides/check-before-the-start.md"
    found = FENCE.findall(text_of(page).partition("\n## On Kubernetes\n")[0])  # tests/kube has that
    codes = []
    for (language, body), (after, shown) in zip(found, [*found[1:], ("", "")], strict=True):
        if language == "python":
            Path("fails.py").write_text(body)
        for line in body.splitlines() if language == "console" else ():
            words = shlex.split(line.removeprefix("# ringleader "))
            if words[0] == "lab":
                words = [words[0], words[1], "--lab-name", scratch_name, *words[2:]]
                words += ["--ssh-port", "37"] if words[1] == "up" else []
                words = [f"{scratch_name}-h3" if one == "h3" else one for one in words]
            else:
                words = [f"--lab-name={scratch_name}" if one == "--lab" else one for one in words]
            done = ringleader(*words, timeout=240)
            printed = done.stdout + done.stderr
            assert done.returncode != 2, f"{line}\n{printed}"
            codes.append(done.returncode)
            for part in re.split(r"…\n?|\n", shown) if not after else ():
                part = re.sub(r"\b(h\d)\b", rf"{scratch_name}-\1", part)
                assert part in printed, f"{line}\n{part}\n{printed}"
    assert codes == [0, 0, 3, 0, 0, 1, 0]
    run: Any = read_any(Path("runs/fails/record.jsonl"))
    assert [one.who for one in run.events if one.kind == "host_fault"] == [f"{scratch_name}-h2"]
    assert "fallen off the bus" in Path("runs/fails/index.html").read_text("utf-8")


AGAIN = """\
import os, socket, sys, time
if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    with open("/var/tmp/kernel.log", "a") as log:
        log.write("mlx5_core 0000:5c:00.0: poll_health:801:(pid 0): device's health compromised\\n")
    time.sleep(2.5)
    sys.exit(1)
print("trained on", socket.gethostname())
"""


def test_a_host_whose_nic_fails_is_replaced_by_a_spare_one(
    ringleader: Any, scratch_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("again.py").write_text(AGAIN)
    lab = ("--lab-name", scratch_name)
    up = ringleader("lab", "up", *lab, "--hosts", "3", "--slots", "1", "--ssh-port", "37")
    assert up.returncode == 0, up.stderr
    words = ("--spare-hosts", "1", "--max-restarts", "1", "--kernel-log", "/var/tmp/kernel.log")
    done = ringleader("run", *lab, *words, "--", "python", "again.py", timeout=200)
    assert done.returncode == 0, done.stderr
    assert f"{scratch_name}-h2: the kernel reports: 0000:5c:00.0: its driver reports a fault" in done.stderr
    assert "[1] trained on " in done.stdout and f"{scratch_name}-h2" not in done.stdout, done.stdout
