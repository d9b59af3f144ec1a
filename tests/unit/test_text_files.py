"""Files that a user names: pipes without another end, devices without an end, directories."""

import os
import threading

import pytest

from ringleader import text_files
from ringleader.errors import Fault


def test_a_file(tmp_path):
    place = tmp_path / "a"
    text_files.write_text(place, "ä\n")
    assert text_files.read_text(place) == "ä\n"
    text_files.write_text(place, "")
    assert text_files.read_bytes(place) == b""


def test_a_pipe_that_somebody_writes_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(b"x" * 100_000,))
    writer.start()
    assert text_files.read_bytes(tmp_path / "pipe") == b"x" * 100_000
    writer.join()


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


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f'{{"a": {"1" * 400}}}', "too large for any counter"),
        (f'{{"a": {"1" * 5000}}}', "too large for any counter"),
        ('{"a": 1e400}', "too large for any measurement"),
        ('{"a": -1e300}', "too large for any measurement"),
        ("[" * 100_000, "nested too deep"),
        ('{"a": "\\ud800"}', "lone surrogate"),
    ],
)
def test_json_that_would_end_arithmetic_or_output_later(text, what):
    with pytest.raises(ValueError, match=what):
        text_files.json_document(text)


def test_json_that_is_fine():
    text = '\ufeff{"a": [1, -2.5e3, "\\ud83d\\ude00"]}'
    assert text_files.json_document(text) == {"a": [1, -2500.0, "\U0001f600"]}


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "  ",
        "[1,0]<stdout>: ",  # Open MPI 5.0.11, tag
        "[1,0]<stderr>: ",
        "[1,0][gpu01:12045]<stdout>: ",  # tag-detailed
        "[prterun-gpu01-12047@1,0]<stdout>: ",  # tag-fullname
        "[Thu Nov 26 13:13:56 2026]<stdout>: ",  # timestamp
        "[Thu Nov 26 13:13:56 2026][1,0]<stdout>: ",
        "[Thu Nov 26 13:13:56 2026]<stdout>: [1,0][gpu01:1]<stdout>: ",
        "[1,0]<stdout>:",  # Open MPI 4.1
        "Thu Nov 26 13:13:56 2026<stdout>:",
        "Thu Nov 26 13:13:57 2026[1,0]<stdout>:",
        "[0] ",  # MPICH 4.0, prepend-rank
        "[12]",
        "[3] [1,3]<stdout>:",
        " 0: ",  # srun -l
        "2026-11-26T11:55:58.123456789Z ",  # kubectl logs --timestamps
        "[pod/train-launcher-x7k2p/launcher] ",
        "[pod/train-0/train] 2026-11-26T11:55:58.123456789+01:00 ",
        "worker-1  | ",  # docker compose
        "worker-1  | 2026-11-26T11:55:58.123456789Z ",
        "\x1b[36mworker-1  | \x1b[0m",
    ],
)
def test_what_launchers_put_before_lines_is_left_out(prefix):
    for line in ("# nThread 1 nGpus 8", "10\timages/sec: 154.3", "1024  128  float", "23/23 - 1s"):
        assert text_files.unprefixed(text_files.printed(prefix + line)) == line
