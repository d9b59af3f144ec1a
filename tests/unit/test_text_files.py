"""Files that a user names and temporary directories; messages and errors as values."""

import multiprocessing
import os
import pickle
import tempfile
import threading

import pytest

from ringleader import text_files
from ringleader.agents import temporary_directory
from ringleader.errors import (
    Fault,
    LabError,
    LaunchError,
    OutputError,
    ProbeError,
    RankError,
    RefusedError,
    RequestError,
    StoppedError,
)


def test_a_pipe_that_nobody_holds(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="nothing came from this pipe"):
        text_files.read_bytes(tmp_path / "pipe", silence=0.05)
    with pytest.raises(OSError, match="nobody reads this pipe"):
        text_files.write_text(tmp_path / "pipe", "x")


def test_what_has_no_end_or_is_no_file(tmp_path):
    with pytest.raises(OSError, match="is larger than 1 MiB"):
        text_files.read_bytes("/dev/zero", largest=1 << 20)
    with pytest.raises(IsADirectoryError):
        text_files.read_text(tmp_path)
    with pytest.raises(FileNotFoundError):
        text_files.read_text(tmp_path / "nothing")


def test_a_message_shows_the_ends_of_a_long_word():
    shown = str(Fault(where="--name", what=f"{'x' * 5000!r} can be no name", hint="use a-z"))
    assert len(shown) < 300 and "(5002 characters)" in shown and shown.endswith("→ use a-z")
    assert str(Fault(where="a", what="x" * 400)) == "a: " + "x" * 400


def test_json_that_would_end_arithmetic_or_output_later():
    for text, what in (
        (f'{{"a": {"1" * 5000}}}', "too large for any counter"),
        ('{"a": 1e400}', "too large for any measurement"),
        ("[" * 100_000, "nested too deep"),
        ('{"a": "\\ud800"}', "lone surrogate"),
    ):
        with pytest.raises(ValueError, match=what):
            text_files.json_document(text)


def test_what_launchers_put_before_lines_is_left_out():
    for prefix in (
        "",
        "[1,0]<stdout>: ",  # Open MPI 5.0.11, tag
        "[1,0][gpu01:12045]<stdout>: ",  # tag-detailed
        "[prterun-gpu01-12047@1,0]<stdout>: ",  # tag-fullname
        "[Thu Nov 26 13:13:56 2026][1,0]<stdout>: ",
        "[Thu Nov 26 13:13:56 2026]<stdout>: [1,0][gpu01:1]<stdout>: ",
        "[1,0]<stdout>:",  # Open MPI 4.1
        "Thu Nov 26 13:13:56 2026<stdout>:",
        "Thu Nov 26 13:13:57 2026[1,0]<stdout>:",
        "[0] ",  # MPICH 4.0, prepend-rank
        "[3] [1,3]<stdout>:",
        " 0: ",  # srun -l
        "2026-11-26T11:55:58.123456789Z ",  # kubectl logs --timestamps
        "[pod/train-launcher-x7k2p/launcher] ",
        "[pod/train-0/train] 2026-11-26T11:55:58.123456789+01:00 ",
        "worker-1  | ",  # docker compose
        "\x1b[36mworker-1  | \x1b[0m",
    ):
        for line in ("# nThread 1 nGpus 8", "10\timages/sec: 154.3", "1024  128  float", "23/23 - 1s"):
            assert text_files.unprefixed(text_files.printed(prefix + line)) == line


def test_a_file_and_a_pipe_that_somebody_writes_to(tmp_path):
    place = tmp_path / "a"
    text_files.write_text(place, "ä\n")
    assert text_files.read_text(place) == "ä\n"
    text_files.write_text(place, "")
    assert text_files.read_bytes(place) == b""
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(b"x" * 100_000,))
    writer.start()
    assert text_files.read_bytes(tmp_path / "pipe") == b"x" * 100_000
    writer.join()
    text = '\ufeff{"a": [1, -2.5e3, "\\ud83d\\ude00"]}'
    assert text_files.json_document(text) == {"a": [1, -2500.0, "\U0001f600"]}


def make_many(place):
    tempfile.tempdir = place
    for _ in range(100):
        with temporary_directory.directory("test") as made:
            (made / "file").write_text("there")
            assert (made / "file").read_text() == "there"


@pytest.mark.process
def test_those_who_start_while_others_remove_the_last_one_are_not_disturbed(tmp_path):
    context = multiprocessing.get_context("fork")
    several = [context.Process(target=make_many, args=(str(tmp_path),)) for _ in range(4)]
    for one in several:
        one.start()
    for one in several:
        one.join(60)
    assert [one.exitcode for one in several] == [0] * 4
    assert not list(tmp_path.iterdir())


def test_without_a_place_for_it_the_system_s_words_come_out(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError), temporary_directory.directory("test"):
        pass


def test_every_fault_is_in_the_message_with_place_and_hint():
    error = RequestError(
        [Fault(where="-n", what="0 ranks", hint="ask for 1"), Fault(where="", what="no host")]
    )
    assert str(error) == "-n: 0 ranks\n    → ask for 1\nno host"


def test_exit_codes_follow_from_the_kind():
    for kind, code in (
        (RequestError, 2),
        (RefusedError, 3),
        (ProbeError, 3),
        (LaunchError, 3),
        (LabError, 3),
    ):
        error = kind("it is so", hint="do this")
        assert error.exit_code == code
        assert error.faults == (Fault(where="", what="it is so", hint="do this"),)


def test_errors_survive_pickling():
    for error in (
        RequestError([Fault(where="a", what="b", hint="c"), Fault(where="d", what="e")]),
        RankError(Fault(where="rank 1", what="failed"), exit_code=137),
        StoppedError(15),
        OutputError("no space left"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert again.faults == error.faults
        assert again.exit_code == error.exit_code
        assert str(again) == str(error)
