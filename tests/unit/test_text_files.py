"""Files that a user names: pipes without another end, devices without an end, directories."""

from __future__ import annotations

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
