"""``ringleader run --max-restarts N --warm``: the ranks of a restart are forked, with all imported."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

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
