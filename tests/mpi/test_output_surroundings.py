"""Places that take no output: full disks, readers that do not read, readers that leave."""

import contextlib
import json
import os
import signal
import sys
import time

import pytest
from tests.commands import finished

pytestmark = pytest.mark.mpi

FLOOD = "import os\nwhile True: os.write(1, b'y' * 99 + b'\\n')"


@pytest.mark.root("mount a small file system")
def test_a_full_output_directory_costs_its_output_and_nothing_else(workplace, python):
    place = workplace.tmp / "small"
    place.mkdir()
    script = (
        "import os, sys\n"
        "if os.environ['RANK'] == '1':\n"
        "    for i in range(3000): print('z' * 99)\n"
        "print('end of', os.environ['RANK'])"
    )
    # A file system that nobody else sees.
    mount = (
        "unshare",
        "-m",
        "sh",
        "-c",
        'mount -t tmpfs -o size=128k small "$1" && shift && exec "$@"',
        "sh",
    )
    argv = (sys.executable, "-m", "ringleader", "run", "-n", "2", "--oversubscribe", "--output")
    words = (*mount, str(place), *argv, str(place / "out"), python, "-c", script)
    done = finished(words, timeout=90, env=workplace.environ)
    assert done.returncode == 0, done.stderr
    assert "[0] end of 0" in done.stdout and "[1] end of 1" in done.stdout
    warned, lost = (line for line in done.stderr.splitlines() if "--output" in line)
    assert "/stdout cannot be written: No space left on device; the job continues" in warned
    assert "what could not be written is lost: " in lost and "rank 1: " in lost


def test_standard_output_that_is_full_is_told_with_what_was_lost(workplace, python):
    script = "import sys; print('x' * 9); print('seen', file=sys.stderr); sys.exit({code})"
    for code in (0, 7):
        with open("/dev/full", "wb") as full:
            words = ("run", "-n", "2", "--oversubscribe", python, "-c", script.format(code=code))
            process = workplace.ringleader(*words, stdout=full)
            _, said = process.communicate(timeout=90)
        assert process.returncode == code, said
        assert b"Traceback" not in said and b"] seen" in said
        full_words = (
            b"ringleader: standard output cannot be written: No space left on device; the job continues\n"
        )
        assert said.count(full_words) == 1, said
        assert b"output that did not reach standard output is lost: rank" in said


@contextlib.contextmanager
def unread(workplace, *words: str):
    """Run ``ringleader run`` with a standard output that nobody reads and wait until that is full."""
    reader, writer = os.pipe()
    try:
        process = workplace.ringleader("run", *words, stdout=writer)
        os.close(writer)
        yield process
        workplace.started.remove(process)
    finally:
        os.close(reader)


@pytest.mark.long
def test_a_reader_that_does_not_read_stops_no_supervision(workplace, python):
    outcome = workplace.tmp / "outcome.json"
    # A time-out.
    began = time.monotonic()
    words = ("--json-file", str(outcome), "-n", "2", "--oversubscribe", "--timeout", "2", "--grace", "1")
    with unread(workplace, *words, python, "-c", FLOOD) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 124, said
    assert b"--timeout" in said and b"output that did not reach standard output is lost" in said
    assert json.loads(outcome.read_text())["exit_code"] == 124
    # A rank that fails while another floods: the ranks end at once, all that can be said is said.
    fails = f"import os, sys, time\nif os.environ['RANK'] == '1':\n    time.sleep(1); sys.exit(7)\n{FLOOD}"
    with unread(workplace, "-n", "2", "--oversubscribe", "--grace", "1", python, "-c", fails) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 7 and b"rank 1 on localhost ended with exit code 7" in said, said
    # SIGTERM, once the flood stands still.
    with unread(workplace, "-n", "1", "--grace", "1", python, "-c", FLOOD) as process:
        workplace.wait_for("os.write", 1)
        time.sleep(1.0)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 143, said
    # A healthy job has ended, its output waits for the reader; SIGINT ends that wait.
    mark = workplace.tmp / "written"
    script = f"import os; os.write(1, b'y' * {2**20}); open({str(mark)!r}, 'w')"
    with unread(workplace, "-n", "1", python, "-c", script) as process:
        assert workplace.gone("os.write", mark) and process.poll() is None
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert time.monotonic() - began < 120


def test_a_slow_reader_gets_every_line(workplace, python):
    script = "for i in range(60000): print(i, 'z' * 300)"
    process = workplace.ringleader("run", "-n", "2", "--oversubscribe", python, "-c", script)
    assert process.stdout is not None
    time.sleep(2.0)
    heard = process.stdout.read()
    assert process.wait(60) == 0
    for rank in (0, 1):
        mine = [line for line in heard.splitlines() if line.startswith(b"[%d] " % rank)]
        assert mine == [b"[%d] %d %s" % (rank, i, b"z" * 300) for i in range(60000)]
