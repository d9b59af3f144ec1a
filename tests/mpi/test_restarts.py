"""``ringleader run --max-restarts``: all ranks start again, as torchrun has it; with --warm forked."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from ringleader.bench.run_file import read_any

pytestmark = pytest.mark.mpi

SHOW = """
import json, os, sys, time
names = [name for name in os.environ if name.startswith("TORCHELASTIC_")] + ["RANK", "RINGLEADER_JOB_ID"]
print(json.dumps({name: os.environ[name] for name in names}), flush=True)
count = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if count < int(sys.argv[1]):
    os.environ["RANK"] == "1" and sys.exit(3)
    time.sleep(120)  # ringleader-test-rank
"""


START = ("run", "-n", "2", "--oversubscribe", "--mpi", "embedded")


def run(workplace, python, *words, failures=1):
    """Run SHOW, which fails in the first starts; return the exit code, the starts and standard error."""
    done = workplace.run(*START, "--no-prefix", *words, python, "-c", SHOW, str(failures), within=60)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


TRAINS = """
import os, sys, time, ringleader
first = 1 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else 6
for step in range(first, 21):
    time.sleep(0.05)
    ringleader.progress(samples=4, step=step)
    if step == 10 and first == 1 and os.environ["RANK"] == "1":
        time.sleep(0.3)
        sys.exit(3)
"""


def test_a_recorded_run_knows_which_steps_were_made_again(workplace, python, tmp_path):
    words = (*START, "--max-restarts", "1", "-x", "MY_TOKEN=s3cr3t")
    kept = tmp_path / "record"
    done = workplace.run(*words, "--report", str(kept), python, "-c", TRAINS)
    assert done.returncode == 0, done.stderr
    run = read_any(kept)
    assert (run.ranks, len(run.starts), run.faults, run.failure) == (2, 2, (), "")
    assert [one.kind for one in run.events] == ["rank_failed", "restart"]
    assert "rank 1" in run.events[0].who and "exit code 3" in run.events[0].why
    low, high = run.goodput
    assert low == high and 0 < low < 1 and run.wall_clock["again"] > 0 and run.wall_clock["unsure"] == 0
    assert sum(run.wall_clock.values()) == pytest.approx(run.ended.at)
    assert run.again[:2] == ("ringleader", "run") and "--max-restarts=1" in run.again
    assert "--report" not in " ".join(run.again) and "MY_TOKEN" in run.again[run.again.index("-x") + 1]
    assert b"s3cr3t" not in (kept / "record.jsonl").read_bytes()
    assert "lo" in {name for one in run.samples for name in one.interfaces}
    assert f"report written to {kept / 'index.html'}".encode() in done.stderr
    assert "To measure this again" in (kept / "index.html").read_text()
    again = workplace.run(*words, "--report", str(kept), python, "-c", TRAINS)
    assert again.returncode == 2 and b"--report: " in again.stderr and b"already exists" in again.stderr


def counts(shown, rank):
    """The restart counts that a rank has shown, start by start."""
    return [one["TORCHELASTIC_RESTART_COUNT"] for one in shown if one["RANK"] == rank]


def test_all_ranks_start_again_with_torchruns_variables(workplace, python, tmp_path):
    file = tmp_path / "outcome.json"
    code, shown, err = run(workplace, python, "--max-restarts", "3", "--json-file", str(file), failures=2)
    assert code == 0, err
    assert counts(shown, "1") == ["0", "1", "2"]  # rank 0 may be ended before it prints
    assert counts(shown, "0")[-1] == "2"
    assert {one["TORCHELASTIC_MAX_RESTARTS"] for one in shown} == {"3"}
    assert len({one["TORCHELASTIC_RUN_ID"] for one in shown}) == 1
    assert len({one["RINGLEADER_JOB_ID"] for one in shown}) == 3
    assert "rank 1 on localhost ended with exit code 3" in err
    assert "restart 1 of 3" in err and "restart 2 of 3" in err and "restart 3" not in err
    restarts = json.loads(file.read_text())["restarts"]
    assert [(one["number"], one["rank"], one["exit_code"]) for one in restarts] == [(1, 1, 3), (2, 1, 3)]
    assert not workplace.gone_within(1.0)


def test_each_start_keeps_its_own_files(workplace, python, tmp_path):
    code, _, err = run(workplace, python, "--max-restarts", "1", "-o", str(tmp_path / "out"))
    assert code == 0, err
    found = [
        json.loads((tmp_path / "out" / place / "stdout").read_text())["TORCHELASTIC_RESTART_COUNT"]
        for place in ("rank.1", "restart.1/rank.1")
    ]
    assert found == ["0", "1"]


def test_an_interrupt_while_a_failed_job_ends_is_the_end(workplace, python):
    program = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('told', flush=True))\n"
        "if os.environ['RANK'] == '1':\n"
        "    while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        "    sys.exit(3)\n"
        "open(sys.argv[1], 'w').close()  # its handler stands\n"
        "while True: time.sleep(0.1)  # ringleader-test-rank"
    )
    words = (*START, "--max-restarts", "3", python, "-c", program)
    launcher = workplace.ringleader(*words, str(workplace.tmp / "handler"))
    while b"told" not in (line := launcher.stdout.readline()):
        assert line, launcher.communicate()
    launcher.send_signal(signal.SIGINT)
    _, err = launcher.communicate(timeout=20)
    assert launcher.returncode == 3, err
    assert b"start again" not in err


def test_the_time_limit_counts_over_all_starts(workplace, python):
    program = (
        "import os, sys, time; time.sleep(0.7); os.environ['RANK'] == '1' and sys.exit(3); time.sleep(9)"
    )
    words = (*START, "--max-restarts", "1000", "--timeout", "4", python, "-c", program)
    done = workplace.run(*words, within=60)
    assert done.returncode == 124 and b"stopped after 4 s (--timeout)" in done.stderr, done.stderr


# --- --warm -----------------------------------------------------------------------------------------------

SCRIPT = """
import json, os, signal, sys, time
already = "numpy" in sys.modules
import numpy
names = [name for name in os.environ if name.startswith("TORCHELASTIC_")] + ["RANK", "MASTER_PORT"]
count = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
words = {name: os.environ[name] for name in names}
words["unbuffered"] = sys.stdout.write_through
words |= {"already": already, "argv": sys.argv, "main": __name__, "pid": os.getpid(), "in": sys.stdin.read()}
print(json.dumps(words), flush=True)
what = sys.argv[1]
if count == 0:
    end = time.monotonic() + 60  # a restart comes when the host's Python is there
    while not os.path.exists("ready") and time.monotonic() < end:
        time.sleep(0.05)
    os.environ["RANK"] == "1" and sys.exit(3)
    time.sleep(120)  # ringleader-test-rank
if count == 1 and what != "once":
    if os.environ["RANK"] == "1":
        if what == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "raises":
            raise ValueError("the script's own fault")
    time.sleep(120)  # ringleader-test-rank
"""


def start(workplace, python, what, restarts="2", script=SCRIPT):
    """Start a job whose first ranks wait until the Python of this host can fork."""
    (workplace.tmp / "train.py").write_text(script)
    command = ("run", "-n", "2", "--oversubscribe", "--mpi", "embedded", "--no-prefix", "--warm")
    more = ("--max-restarts", restarts, "--workdir", str(workplace.tmp))
    launcher = workplace.ringleader(*command, *more, python, "train.py", what)
    end = time.monotonic() + 90
    while not sockets(workplace):
        assert time.monotonic() < end and launcher.poll() is None, launcher.communicate()
        time.sleep(0.05)
    (workplace.tmp / "ready").touch()
    return launcher


def sockets(workplace):
    """The sockets of warm Pythons: with a long path in TMPDIR jobs have their directory in /tmp."""
    bases = [Path(place) / f"ringleader-{os.getuid()}" for place in ("/tmp", workplace.environ["TMPDIR"])]
    began = workplace.tmp.stat().st_ctime
    found = [path for base in bases for path in base.glob("*-warm/*/warm.sock")]
    return [path for path in found if path.stat().st_ctime >= began]


def shown(out):
    return [json.loads(line) for line in out.splitlines() if line.startswith(b"{")]


@pytest.mark.parametrize("what", ["once", "killed", pytest.param("raises", marks=pytest.mark.long)])
def test_ranks_of_a_restart_have_imported_already(workplace, python, what):
    workplace.environ.pop("PYTHONUNBUFFERED", None)
    launcher = start(workplace, python, what)
    out, err = launcher.communicate(timeout=90)
    assert launcher.returncode == 0, err
    found = shown(out)
    starts = 2 if what == "once" else 3
    last = [one for one in found if one["TORCHELASTIC_RESTART_COUNT"] == str(starts - 1)]
    assert sorted(one["RANK"] for one in last) == ["0", "1"], found
    for one in found:
        assert one["already"] == (one["TORCHELASTIC_RESTART_COUNT"] != "0"), found
        assert (one["argv"], one["main"], one["in"]) == (["train.py", what], "__main__", "")
        assert one["TORCHELASTIC_MAX_RESTARTS"] == "2" and one["unbuffered"], found
    assert len({one["TORCHELASTIC_RUN_ID"] for one in found}) == 1
    assert len({one["pid"] for one in found}) == len(found)
    if what == "killed":
        assert b"rank 1 on localhost was killed by SIGKILL" in err, err
    if what == "raises":
        assert b"ValueError: the script's own fault" in err and b"exit code 1" in err, err
    assert not workplace.gone_within(5.0)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.long)])
def test_nothing_outlives_the_launcher(workplace, python, number):
    launcher = start(workplace, python, "forever")
    while b'"TORCHELASTIC_RESTART_COUNT": "1"' not in (line := launcher.stdout.readline()):
        assert line, launcher.communicate()
    launcher.send_signal(number)
    launcher.communicate(timeout=60)
    assert not workplace.gone_within(15.0)
    assert not sockets(workplace)
