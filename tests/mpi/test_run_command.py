"""``ringleader run`` as a user types it, on the embedded MPI: output, exit codes, files, words."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import finished

pytestmark = pytest.mark.mpi

SECONDS = 90


def run(
    *words: str, cwd: Path, env: dict[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run one command line in a directory, two ranks on however many cores there are."""
    return finished(
        [sys.executable, "-m", "ringleader", "run", "-n", "2", "--oversubscribe", *words],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"} | (env or {}),
        input=stdin,
        timeout=SECONDS,
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory whose name has spaces and what else a shell would trip over."""
    directory = tmp_path / "my dir; $HOME 'x'"
    directory.mkdir()
    return directory


def test_a_healthy_job(place: Path) -> None:
    done = run("--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE; pwd", cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    expected = [f"[{rank}] {line}" for rank in (0, 1) for line in (f"rank {rank} of 2", str(place))]
    assert sorted(done.stdout.splitlines()) == sorted(expected)


def test_arguments_and_variables_arrive_byte_for_byte(place: Path) -> None:
    words = ["a b", "'\"", "$HOME;ls", "line\nbreak", "", "*", "é", "--", "-n", "\\"]
    show = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['ODD'], sys.executable]))"
    done = run("-x", "ODD=$x 'y'\n\"z\"", "--no-prefix", "python", "-c", show, *words, cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    python = str(Path(sys.executable).parent / "python")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[words, "$x 'y'\n\"z\"", python]] * 2


XID = "NVRM: Xid (PCI:0000:05:00): 79, pid=1234, GPU has fallen off the bus."


def test_a_failing_ranks_message_quotes_the_kernel(place: Path) -> None:
    log = place / "kernel.log"
    log.write_text("NVRM: Xid (PCI:0000:07:00): 48, of an earlier job\n")
    script = "if [ $RANK = 0 ]; then touch begun; exec sleep 60; fi; until [ -e begun ]; do sleep 0.1; done; "
    script += f"echo '{XID}' >> kernel.log; sleep 0.5; exit 9"
    words = ("--kernel-log", str(log), "--json-file", "o.json", "--", "sh", "-c", script)
    done = run(*words, cwd=place)
    outcome = json.loads((place / "o.json").read_text())
    (fault,) = outcome["host_faults"]
    assert (done.returncode, fault["kind"], fault["number"]) == (9, "kernel.xid", 79), done.stderr
    live, last = done.stderr.split("ringleader: rank 1 on ")
    assert "the kernel reports: Xid 79 on GPU 0000:05:00.0" in live and XID in live
    assert "the kernel reports: Xid 79" in last and XID in last and "→ restart the host" in last


def test_a_machine_with_a_fault_is_refused_before_any_rank_starts(place: Path) -> None:
    (place / "kernel.log").write_text(XID)
    words = ("--check", "quick", "--kernel-log", str(place / "kernel.log"), "--", "touch", "started")
    done = run(*words, cwd=place)
    assert (done.returncode, done.stdout, (place / "started").exists()) == (3, "", False)
    assert "kernel.xid: Xid 79" in done.stderr and "--check: the job is refused" in done.stderr


def test_the_first_failure_is_told_last_and_written_down(place: Path) -> None:
    script = "echo out $RANK; echo err $RANK >&2; [ $RANK = 0 ] || exit 7; sleep 60"
    done = run("-o", "logs", "--json-file", "o.json", "--quiet", "sh", "-c", script, cwd=place)
    assert (done.returncode, done.stdout) == (7, "")
    assert done.stderr.splitlines()[0].startswith("ringleader: rank 1 on localhost ended with exit code 7")
    log = place / "logs" / "rank.1" / "stderr"
    assert done.stderr.splitlines()[1] == f"    log: {log}"
    assert done.stderr.splitlines()[-1] == "ringleader: exit code 7 (rank 1)"
    assert log.read_text() == "err 1\n"
    outcome = json.loads((place / "o.json").read_text())
    assert (outcome["exit_code"], outcome["whose"]) == (7, "rank 1")
    assert outcome["first_failure"]["log"] == str(log)
    assert [one["exit_code"] for one in outcome["ranks"]][1] == 7
    assert outcome["ranks"][0]["stopped"]


def test_json_has_standard_output_to_itself_and_only_chosen_ranks_are_shown(place: Path) -> None:
    (place / "ringleader.toml").write_text('[run]\nshow-ranks = "1"\n')
    seen = "echo out $RANK; env | grep -c ^RINGLEADER_OPT"
    done = run("-x", "RINGLEADER_DEADLINE=60", "--json", "--", "sh", "-c", f"{seen}; true", cwd=place)
    assert done.returncode == 0
    assert done.stderr == "[1] out 1\n[1] 0\n"
    assert json.loads(done.stdout)["exit_code"] == 0


@pytest.mark.parametrize("elastic", [(), ("--min-np", "1")], ids=["all stop", "elastic"])
def test_a_terminal_that_does_not_control_the_launcher_is_read(place: Path, elastic: tuple[str, ...]) -> None:
    """``setsid``, a serial console: standard input is a terminal, but not our controlling one."""
    master, terminal = os.openpty()
    try:
        os.write(master, b"one\n\4")
        done = subprocess.run(
            [sys.executable, "-m", "ringleader", "run", "-n", "1", *elastic, "cat"],
            cwd=place, stdin=terminal, capture_output=True, text=True, timeout=SECONDS,
            start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(master)
        os.close(terminal)
    assert (done.returncode, done.stdout) == (0, "[0] one\n"), done.stderr


@pytest.mark.long
def test_a_reader_that_leaves_ends_the_job_silently(place: Path) -> None:
    job = subprocess.Popen(
        [sys.executable, "-m", "ringleader", "run", "-n", "1", "yes"],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert job.stdout is not None and job.stderr is not None
        assert job.stdout.readline() == b"[0] y\n"
        job.stdout.close()
        assert job.wait(SECONDS) == 141
        assert job.stderr.read() == b""
        job.stderr.close()
    finally:
        job.kill()
        job.wait()


def test_variables_of_the_caller_a_file_and_a_word(place: Path) -> None:
    (place / "my.env").write_text('A=file\nB="file b"\nFROM_HERE\n')
    show = "echo $A,$B,$FROM_HERE,$OMP_NUM_THREADS,$MASTER_PORT,${RINGLEADER_TOKEN:-none}"
    done = run(
        "--env-file", "my.env", "-x", "A=word", "--master-port", "23456", "--threads", "3", "sh", "-c", show,
        cwd=place, env={"FROM_HERE": "caller"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    expected = [f"[{rank}] word,file b,caller,3,23456,none" for rank in (0, 1)]
    assert sorted(done.stdout.splitlines()) == expected


def test_any_address_of_this_machine_is_a_host(workplace, mpi, python):
    words = ("-H", "127.0.1.1:2", python, "-c", "import sys; print(sys.argv[1:])", ":", "x")
    done = workplace.run("run", "--mpi", mpi, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"[':', 'x']") == 2
