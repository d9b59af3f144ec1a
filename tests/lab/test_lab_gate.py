"""The gate before the start, as its guide shows it: every command runs, what it shows is printed."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from ringleader.bench.run_file import read_any

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(600)]
GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/check-before-the-start.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_commands_of_the_guide(
    ringleader: Any, scratch_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = BLOCK.findall(
        GUIDE.read_text("utf-8").partition("\n## On Kubernetes\n")[0]
    )  # tests/kube has that
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
                words[1:1] = ["--json-file", "outcome.json"]
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


def test_a_host_that_is_slow_is_left_out(
    ringleader: Any, scratch_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An active test finds the host whose link is slow; the job runs on the others and says so."""
    monkeypatch.chdir(tmp_path)
    lab = ("--lab-name", scratch_name)
    size = ("--hosts", "4", "--slots", "1", "--bandwidth", "1gbit")
    up = ringleader("lab", "up", *lab, *size, "--ssh-port", "37")
    assert up.returncode == 0, up.stderr
    slow = ringleader("lab", "slow", *lab, f"{scratch_name}-h3", "--into", "20mbit", "--out-of", "20mbit")
    assert slow.returncode == 0, slow.stderr
    words = (
        "--check",
        "active",
        "--spare-hosts",
        "1",
        "--json-file",
        "outcome.json",
        "--",
        "echo",
        "trained",
    )
    done = ringleader("run", *lab, *words, timeout=200)
    assert done.returncode == 0, done.stderr
    assert f"{scratch_name}-h3 is left out: active." in done.stderr, done.stderr
    hosts = [one["name"] for one in json.loads(Path("outcome.json").read_text())["hosts"]]
    assert hosts == [f"{scratch_name}-h{number}" for number in (1, 2, 4)]
