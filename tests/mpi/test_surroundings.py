"""What a job finds around it and writes to: output, closed streams, odd directories, full disks, limits."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from tests.commands import finished

sys.path.insert(0, str(Path(__file__).parent))
import programs

from ringleader.launch.mpirun.mpi_discovery import find_mpi

pytestmark = pytest.mark.mpi

# --- what ranks write and read ----------------------------------------------------------------------------


def test_lines_stay_whole_and_in_order(workplace, python):
    script = (
        "import sys\n"
        "for i in range(3000):\n"
        "    sys.stdout.write(f'{i} ' + 'x' * (i % 97)); sys.stdout.write('\\n')"
    )
    outcome, heard = workplace.launch(python, "-c", script)
    assert outcome.exit_code == 0
    expected = "".join(f"{i} {'x' * (i % 97)}\n" for i in range(3000))
    assert heard.text(0) == heard.text(1) == expected
    assert all(line.count(b"\n") == 1 for _, _, line in heard.lines)


def test_long_lines_binary_bytes_and_a_last_line_without_line_feed(workplace, python):
    script = (
        "import sys\nout = sys.stdout.buffer\n"
        "out.write(b'y' * 3_000_000 + b'\\n')\nout.write(bytes(range(256)) * 50)\nout.write(b'end')"
    )
    outcome, heard = workplace.launch(python, "-c", script)
    assert outcome.exit_code == 0
    expected = b"y" * 3_000_000 + b"\n" + bytes(range(256)) * 50 + b"end"
    assert heard.bytes(0) == expected and heard.bytes(1) == expected


def test_partial_line_is_kept_until_it_ends(workplace, python):
    script = (
        "import sys, time\nsys.stdout.write('half'); sys.stdout.flush(); time.sleep(0.5); print(' and half')"
    )
    _, heard = workplace.launch(python, "-c", script)
    assert [line for rank, _, line in heard.lines if rank == 0] == [b"half and half\n"]


def test_rank_0_reads_our_standard_input_and_others_nothing(workplace, python):
    script = "import sys; data = sys.stdin.buffer.read(); print(len(data), hash(data) and data[-5:])"
    with tempfile.TemporaryFile() as file:
        file.write(b"0123456789" * 200_000 + b"tail\n")
        file.seek(0)
        outcome, heard = workplace.launch(python, "-c", script, stdin=file.fileno())
    assert outcome.exit_code == 0
    assert heard.text(0) == "2000005 b'tail\\n'\n" and heard.text(1).startswith("0 ")


def test_input_that_nobody_reads_does_not_hang(workplace):
    with tempfile.TemporaryFile() as file:
        file.write(b"x" * 5_000_000)
        file.seek(0)
        outcome, _ = workplace.launch("true", stdin=file.fileno())
    assert outcome.exit_code == 0


def test_next_sitecustomize_still_runs(workplace, python):
    (workplace.tmp / "sitecustomize.py").write_text("import builtins; builtins.from_site = 'mine'")
    workplace.environ["PYTHONPATH"] = str(workplace.tmp)
    outcome, heard = workplace.launch(python, "-c", "print(from_site)")
    assert outcome.exit_code == 0 and heard.text(0) == "mine\n"


# --- places that take no output ---------------------------------------------------------------------------

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


# --- streams, users, many ranks ---------------------------------------------------------------------------

RUN = ("run", "-n", "2", "--oversubscribe")
NOBODY = 65534


@pytest.mark.root("become another user; here all tests ran as one")
@pytest.mark.parametrize("which", ["embedded", "openmpi4"])
def test_an_ordinary_user_where_nothing_can_be_written(workplace, which):
    """No home to be found, a working directory of root's whose name has a space."""
    place = workplace.tmp / "read only"
    place.mkdir()
    scratch = workplace.tmp / "t"
    scratch.mkdir()
    os.chown(scratch, NOBODY, NOBODY)
    workplace.tmp.chmod(0o755)
    python, path = programs.interpreter_for(NOBODY)
    environ = workplace.environ | {"TMPDIR": str(scratch), "PYTHONPATH": path, "HOME": "/nonexistent"}
    mpirun = find_mpi(which, environ=os.environ).mpirun
    script = (python, "-c", "import os; print(os.getcwd(), os.access('.', os.W_OK))\n" + programs.ALLREDUCE)
    done = subprocess.run(
        (python, "-m", "ringleader", *RUN, "--mpi", mpirun, *script),
        user=NOBODY, group=NOBODY, extra_groups=[], env=environ, cwd=place, capture_output=True, timeout=90,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b""), done.stderr
    assert done.stdout.count(f"{place} False\n".encode()) == 2
    assert done.stdout.count(b"Open MPI v") == 2
    assert not (scratch / f"ringleader-{NOBODY}").exists()


# --- limits -----------------------------------------------------------------------------------------------

root_only = pytest.mark.root("mount a small file system")
RINGLEADER_RUN = (sys.executable, "-m", "ringleader", "run")
SAY_LIMIT = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"


def test_a_low_limit_on_open_files(workplace, python):
    """Twelve ranks of whom mpirun and launcher need more than is allowed at first; ranks get theirs back."""
    script = 'ulimit -S -n "$1"; test -z "$2" || ulimit -H -n "$2"; shift 2; exec "$@"'
    words = (*RINGLEADER_RUN, "-n", "12", "--oversubscribe", python, "-c", SAY_LIMIT)
    for soft, hard, code in (("60", "", 0), ("60", "70", 3)):
        done = subprocess.run(
            ("sh", "-c", script, "sh", soft, hard, *words),
            capture_output=True, text=True, timeout=90, env=workplace.environ, check=False,
        )  # fmt: skip
        assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
        if code == 0:
            assert sorted(line.split()[-1] for line in done.stdout.splitlines()) == ["60"] * 12
        else:
            assert "open files: the job needs 116 open files on this machine, 70 are allowed" in done.stderr


@root_only
def test_directories_that_cannot_be_used(workplace, python):
    small = workplace.tmp / "small"
    small.mkdir()
    mount = 'mount -t tmpfs -o {options} small {place} && {then}; shift; {env} exec "$@"'
    full = mount.format(
        options="size=64k", place=small, env=f"TMPDIR={small}",
        then=f"dd if=/dev/zero of={small}/fill bs=1k 2>/dev/null; true",
    )  # fmt: skip
    read_only = mount.format(options="ro", place=small, env=f"TMPDIR={small}", then="true")
    missing = f'shift; TMPDIR={small}/none exec "$@"'
    # What lies below /tmp stays there: this checkout may.
    everywhere = "mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp"
    everywhere += ' && shift; TMPDIR=/tmp exec "$@"'
    for script, code, said in (
        (full, 0, f"TMPDIR: {small} is full; the job's own files go to /tmp"),
        (read_only, 0, f"TMPDIR: {small} cannot be written; the job's own files go to /tmp"),
        (missing, 0, ""),
        (everywhere, 3, "cannot be written: Read-only file system"),
    ):
        words = (*RINGLEADER_RUN, "-n", "1", "echo", "ran")
        done = subprocess.run(
            ("unshare", "-m", "sh", "-c", script, "sh", "", *words),
            capture_output=True, text=True, timeout=90, env=workplace.environ, cwd="/", check=False,
        )  # fmt: skip
        assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
        assert said in done.stderr and ("ran" in done.stdout) == (code == 0), done.stderr


@pytest.mark.root("become a user whose processes are counted")
@pytest.mark.parametrize(("most", "code"), [(1, 3), (3, 2)])
def test_a_limit_on_processes_ends_in_words(workplace, most, code):
    """Where launcher, supervisor, mpirun or agents get no process, somebody says so and all of it ends.

    Three are enough to look and too few for two ranks, which is known before anything starts.
    """
    user = 64123
    python, path = programs.interpreter_for(user)
    home = workplace.tmp / "h"
    home.mkdir()
    for directory in (workplace.tmp, home):
        os.chown(directory, user, user)
    environ = workplace.environ | {"TMPDIR": str(home), "HOME": str(home), "PYTHONPATH": path}
    mpirun = find_mpi("embedded", environ=os.environ).mpirun
    words = ("run", "-n", "2", "--oversubscribe", "--mpi", mpirun, "true")
    done = subprocess.run(
        ("bash", "-c", f'ulimit -u {most}; exec "$@"', "sh", python, "-m", "ringleader", *words),
        user=user, group=user, extra_groups=[], env=environ, cwd=home, capture_output=True, timeout=90,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr and b"ringleader: " in done.stderr, done.stderr
