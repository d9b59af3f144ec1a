"""Standard output and error that cannot be written: one message, a documented code, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PRINTING = (
    ("--help",),
    ("--version",),
    ("run", "--help"),
    ("run", "--dry-run", "-n", "1", "true"),
    ("operator", "manifests"),
    ("operator", "crd"),
    ("image", "list"),
    ("render", "mpijob", "--image", "a", "--", "true"),
)
"""Commands whose purpose is what they print, in ways of their own."""
MESSAGE = "ringleader: standard output: No space left on device\n"


def command(
    *words: str, stdout: int, stderr: int = subprocess.PIPE, cwd: str | None = None
) -> tuple[int, str]:
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
def test_output_that_cannot_be_written_is_told_once_and_is_no_success(words: tuple[str, ...]) -> None:
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


def test_a_failing_command_keeps_its_code_where_its_words_cannot_be_written() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        assert command("run", "--no-such-option", stdout=full, stderr=full)[0] == 2
        assert command("report", "/there/is/no/run", stdout=full, stderr=full)[0] == 2
    finally:
        os.close(full)


@pytest.mark.parametrize(
    "words", [("run", "-n", "1", "true"), ("operator", "crd"), ("report", "x")], ids=" ".join
)
def test_a_deleted_working_directory_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
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


def test_the_place_of_the_outcome_is_tried_before_the_job(tmp_path: Path) -> None:
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
