"""What ranks write and read: order, long lines, binary bytes, partial lines, standard input, files."""

import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


pytestmark = pytest.mark.mpi


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


def test_output_dir_has_one_file_for_each_rank_and_stream(workplace, python):
    script = (
        "import os, sys; print('out', os.environ['RANK']); print('err', os.environ['RANK'], file=sys.stderr)"
    )
    place = workplace.tmp / "kept here"
    outcome, heard = workplace.launch(python, "-c", script, output_dir=str(place), quiet=True, np=11)
    assert outcome.exit_code == 0 and heard.lines == []
    assert (place / "rank.03/stdout").read_text() == "out 3\n"
    assert (place / "rank.10/stderr").read_text() == "err 10\n"
    assert outcome.ends[3].log == str(place / "rank.03/stderr")


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
