"""The file of ``--json-file``, and exit codes of commands that a signal ends."""

import signal
from pathlib import Path

import pytest

from ringleader.cli.interrupts import Interrupted
from ringleader.cli.main import run_guarded
from ringleader.cli.output import JsonOptions, result_to
from ringleader.errors import RefusedError


def test_a_file_that_gets_no_result_is_removed_and_one_of_before_stays(tmp_path: Path) -> None:
    new, old = tmp_path / "new.json", tmp_path / "old.json"
    old.write_text("before")
    for file in (new, old):
        with result_to(JsonOptions(json_file=str(file))):
            assert file.exists(), "it is opened before any work"
    assert not new.exists() and old.read_text() == "before"


def test_a_good_job_whose_result_cannot_be_written_fails_and_a_failed_one_keeps_its_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with result_to(JsonOptions(json_file="/dev/full")) as result:
        with pytest.raises(RefusedError, match="/dev/full cannot be written: No space left"):
            result.keep(lambda: {"exit_code": 0}, failed=False)
        result.keep(lambda: {"exit_code": 7}, failed=True)
    assert "/dev/full cannot be written: No space left" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_a_signal_ends_has_its_code(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        raise Interrupted(number)

    with pytest.raises(SystemExit) as left:
        run_guarded(command)
    assert left.value.code == 128 + number
    assert capsys.readouterr().err == f"ringleader: stopped by {number.name}\n"
