"""``horovodrun`` and ``horovod.run`` with real ranks, here and in a lab."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import finished
from tests.fork_server import clean_environment

from ringleader.lab.saved_state import Lab
from ringleader.runner import run

pytestmark = [pytest.mark.mpi, pytest.mark.torch, pytest.mark.process, pytest.mark.timeout(200)]

SCRIPT, ELASTIC, CALLS = (
    str(Path(__file__).parent / "programs" / name)
    for name in ("horovodrun_script.py", "horovod_elastic_script.py", "horovod_run_calls.py")
)


def horovodrun(*words: str, timeout: float = 120, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringleader.runner.launch", *words]
    return finished(command, env=clean_environment() | environ, timeout=timeout)


@pytest.mark.smoke
def test_a_script_runs_as_it_is(tmp_path: Path) -> None:
    logs, timeline = tmp_path / "logs", tmp_path / "timeline.json"
    options = ("--output-filename", str(logs), "--timeline-filename", str(timeline), "--gloo")
    interfaces = ("-H", "localhost:1,127.0.0.1:1", "--network-interface", "lo")
    done = horovodrun("-np", "2", *options, *interfaces, sys.executable, SCRIPT, MINE="7")
    assert done.returncode == 0, done.stderr
    lines = [f"{rank} of 2: [3.0, 3.0, 3.0, 3.0], mine is 7" for rank in (0, 1)]
    shown = done.stdout.splitlines()
    assert all(f"[{rank}]<stdout>:{line}" in shown for rank, line in enumerate(lines)), done.stdout
    assert "[1]<stderr>:for people" in done.stderr.splitlines()
    for rank, line in enumerate(lines):
        assert (logs / f"rank.{rank}/stdout").read_text().splitlines() == [line, "rank done"]
    assert any("total" in str(event.get("args", "")) for event in json.loads(timeline.read_text()))


@pytest.mark.long
def test_a_rank_that_fails() -> None:
    done = horovodrun("-np", "2", "--mpi", sys.executable, SCRIPT, "3")
    assert done.returncode == 3
    assert "[1,0]<stdout>:0 of 2: [3.0, 3.0, 3.0, 3.0], mine is None" in done.stdout
    said = done.stderr.splitlines()
    assert said[-3].startswith("Horovod detected that one or more processes exited with non-zero status")
    assert said[-2:] == ["Process name: 1", "Exit code: 3"]


def test_more_ranks_than_cores() -> None:
    count = 2 * len(os.sched_getaffinity(0)) + 1
    done = horovodrun("-np", str(count), "sh", "-c", "echo rank $HOROVOD_RANK of $HOROVOD_SIZE")
    assert done.returncode == 0, done.stderr
    expected = [f"[{rank}]<stdout>:rank {rank} of {count}" for rank in range(count)]
    assert sorted(done.stdout.splitlines()) == sorted(expected)


def test_an_elastic_job_on_hosts_that_a_script_finds(tmp_path: Path) -> None:
    find = tmp_path / "find"
    find.write_text("echo localhost:1; echo 127.0.0.1:1\n")
    find.chmod(0o755)
    options = ("--min-np", "1", "--max-np", "2", "--host-discovery-script", str(find))
    done = horovodrun("-np", "2", *options, "sh", "-c", "sleep $HOROVOD_RANK; echo $HOROVOD_HOSTNAME")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:localhost", "[1]<stdout>:127.0.0.1"]
    said = done.stderr.splitlines()
    # Whichever answers last is named first.
    assert any("same machine" in line and "localhost" in line and "127.0.0.1" in line for line in said), said


@pytest.mark.long
def test_of_two_names_of_this_machine_one_can_be_left_out(tmp_path: Path) -> None:
    words = ("-np", "2", "--min-np", "1", "-H", "localhost:1,127.0.0.1:1")
    done = horovodrun(*words, sys.executable, ELASTIC, str(tmp_path / "failed"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[0]<stdout>:done: was rank 0, is 0 of 1"]
    assert "the host is left out" in done.stderr


def test_a_call_on_ranks_of_an_elastic_job() -> None:
    def rank_and_size() -> tuple[int, int]:
        return int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])

    assert run(rank_and_size, num_proc=2, min_num_proc=1, max_num_proc=2) == [(0, 2), (1, 2)]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-np", "2"), "horovodrun -np 2 python train.py"),
        (("-np", "2", "no-such-program"), "there is no program 'no-such-program'"),
        (("-np", "3", "-H", "localhost:2", "true"), "3 ranks asked for, 2 slots there"),
        (("-np", "2", "--min-np", "3", "true"), "2 ranks asked for, from 3 to any number allowed"),
        (("-np", "2", "--fusion-threshold-mb", "-1", "true"), "out of range"),
        (("-np", "2", "--nonsense", "true"), "unrecognized arguments"),
    ],
)
def test_bad_input_is_one_message_and_code_2(words: tuple[str, ...], told: str) -> None:
    done = horovodrun(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr and done.stderr.count("ringleader: ") == 1


@pytest.mark.long
def test_calls_of_horovod_run() -> None:
    done = finished([sys.executable, "-m", "ringleader.alias", CALLS], env=clean_environment(), timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all calls are as they should be" in done.stdout


@pytest.mark.lab
@pytest.mark.long
def test_scripts_on_hosts_and_a_rank_that_fails_takes_its_host_out(lab: Lab, tmp_path: Path) -> None:
    words = ("-np", "4", "-H", ",".join(f"{host.name}:2" for host in lab.hosts))
    config = {"RINGLEADER_OPT_RUN_SSH_CONFIG": lab.ssh_config, "MINE": "8"}
    done = horovodrun(*words, sys.executable, SCRIPT, **config)
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        line = f"[{rank}]<stdout>:{rank} of 4: [10.0, 10.0, 10.0, 10.0], mine is 8"
        assert line in done.stdout.splitlines(), done.stdout
    failed = horovodrun(*words, sys.executable, SCRIPT, "5", **config)
    assert failed.returncode == 5 and "Process name: 1\nExit code: 5" in failed.stderr
    done = horovodrun(*words, "--min-np", "2", sys.executable, ELASTIC, str(tmp_path / "failed"), **config)
    assert done.returncode == 0, done.stderr
    expected = [f"[{rank}]<stdout>:done: was rank {rank + 2}, is {rank} of 2" for rank in (0, 1)]
    assert sorted(done.stdout.splitlines()) == expected
