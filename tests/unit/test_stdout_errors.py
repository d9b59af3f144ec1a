"""Output that cannot be written, results that are kept, and exit codes of commands that a signal ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ringleader.cli import interrupts
from ringleader.cli.bench.bench_options import run_directory
from ringleader.cli.interrupts import Interrupted
from ringleader.cli.main import run_guarded
from ringleader.cli.output import JsonOptions, result_to
from ringleader.errors import RefusedError

pytestmark = pytest.mark.process

PRINTING = (
    ("--help",),
    ("run", "--dry-run", "-n", "1", "true"),
    ("operator", "crd"),
    ("image", "list"),
    ("render", "mpijob", "--image", "a", "--", "true"),
)
"""Commands whose purpose is what they print, in ways of their own."""
MESSAGE = "ringleader: standard output: No space left on device\n"


def command(*words, stdout, stderr=subprocess.PIPE, cwd=None):
    argv = (sys.executable, "-m", "ringleader", *words)
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
    )
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_output_that_cannot_be_written_is_told_once_and_is_no_success(words):
    full = os.open("/dev/full", os.O_WRONLY)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        code, said = command(*words, stdout=full)
        assert (code, said.startswith(MESSAGE), said.count("\n")) == (3, True, 2), said
        if words in PRINTING[-2:]:  # the end of a pipe comes through the same lines for all of them
            assert command(*words, stdout=writer) == (141, "")
            assert command(*words, stdout=subprocess.DEVNULL, stderr=full) == (0, "")
    finally:
        os.close(full)
        os.close(writer)


def test_a_failing_command_keeps_its_code_where_its_words_cannot_be_written():
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        assert command("run", "--no-such-option", stdout=full, stderr=full)[0] == 2
        assert command("report", "/there/is/no/run", stdout=full, stderr=full)[0] == 2
    finally:
        os.close(full)


@pytest.mark.parametrize(
    "words", [("run", "-n", "1", "true"), ("operator", "crd"), ("report", "x")], ids=" ".join
)
def test_a_deleted_working_directory_is_named(tmp_path, words):
    place = tmp_path / "gone"
    place.mkdir()
    script = 'rmdir "$PWD"; exec "$@"'
    argv = ("sh", "-c", script, "sh", str(Path(sys.executable).with_name("ringleader")), *words)
    done = subprocess.run(argv, cwd=place, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == {"operator": 0, "report": 2, "run": 3}[words[0]], done.stderr
    # Where the environment's path has a space, pip's script starts with a shell, which complains by itself.
    said = [line for line in done.stderr.splitlines() if not line.startswith("sh: ")]
    if done.returncode == 3:
        assert said[0] == "ringleader: the working directory: it has been deleted"


def test_the_place_of_the_outcome_is_tried_before_the_job(tmp_path):
    ran, kept = tmp_path / "ran", tmp_path / "kept.json"
    kept.write_text("before")
    wrong = tmp_path / "no/such.json"
    code, said = command("run", "--json-file", str(wrong), "touch", str(ran), stdout=subprocess.DEVNULL)
    assert code == 2 and said.startswith(f"ringleader: --json-file: {wrong} cannot be written: No such file")
    assert not ran.exists()
    # A dry run touches nothing, and a refused job says so in the file.
    code, _ = command(
        "run", "--dry-run", "--json-file", str(kept), "-n", "1", "true", stdout=subprocess.DEVNULL
    )
    assert (code, kept.read_text()) == (0, "before")
    code, _ = command("run", "--json-file", str(kept), "no-such-program", stdout=subprocess.DEVNULL)
    assert code == 2 and '"exit_code": 2' in kept.read_text()


def test_a_file_that_gets_no_result_is_removed_and_one_of_before_stays(tmp_path):
    new, old = tmp_path / "new.json", tmp_path / "old.json"
    old.write_text("before")
    for file in (new, old):
        with result_to(JsonOptions(json_file=str(file))):
            assert file.exists(), "it is opened before any work"
    assert not new.exists() and old.read_text() == "before"


def test_a_good_job_whose_result_cannot_be_written_fails_and_a_failed_one_keeps_its_code(capsys):
    with result_to(JsonOptions(json_file="/dev/full")) as result:
        with pytest.raises(RefusedError, match="/dev/full cannot be written: No space left"):
            result.keep(lambda: {"exit_code": 0}, failed=False)
        result.keep(lambda: {"exit_code": 7}, failed=True)
    assert "/dev/full cannot be written: No space left" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_a_signal_ends_has_its_code(number, capsys):
    def command():
        raise Interrupted(number)

    with pytest.raises(SystemExit) as left:
        run_guarded(command)
    assert left.value.code == 128 + number
    assert capsys.readouterr().err == f"ringleader: stopped by {number.name}\n"


def test_a_signal_is_raised_and_the_handlers_of_before_are_put_back():
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: heard.append(number))
    hangup = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        ours = signal.getsignal(signal.SIGTERM)
        with pytest.raises(interrupts.Interrupted) as stopped, interrupts.raised():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, "nohup"
            os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.number_of(stopped.value) == signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is ours
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGHUP, hangup)


def test_a_place_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RefusedError, match="file/a"),
        run_directory(str(tmp_path / "file"), "a", replace=False),
    ):
        pass


def test_an_empty_directory_does_not_stay_and_what_was_kept_does(tmp_path):
    with pytest.raises(KeyboardInterrupt), run_directory(str(tmp_path), "a", replace=False) as directory:
        assert directory.is_dir()
        raise KeyboardInterrupt
    assert not (tmp_path / "a").exists()
    with run_directory(str(tmp_path), "a", replace=False) as directory:
        (directory / "run.json").write_text("{}")
    assert (tmp_path / "a/run.json").exists()
