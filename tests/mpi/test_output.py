"""What ranks write and read: order, long lines, binary bytes, partial lines, standard input, files."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import programs

from ringleader.launch.mpirun.mpi_discovery import find_mpi

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


def test_a_slow_reader_slows_the_ranks_and_loses_nothing(workplace, python):
    class Slow(list):
        def append(self, item):
            if len(self) == 5:
                import time

                time.sleep(2.0)
            super().append(item)

    from types import SimpleNamespace

    lines = Slow()
    heard = SimpleNamespace(
        output=lambda rank, stream, line: lines.append(line),
        report=lambda *a: None,
        progress=lambda *a: None,
        warning=lambda *a: None,
        flush=lambda: None,
        waiting=lambda: 0,
    )
    script = "for i in range(40000): print('z' * 500)"
    outcome, _ = workplace.launch(python, "-c", script, recorder=heard)
    assert outcome.exit_code == 0 and len(lines) == 80000


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


def test_directories_and_arguments_with_spaces_and_quotes(workplace, python):
    place = workplace.tmp / "a dir; with $HOME 'quotes'"
    place.mkdir()
    words = ("two words", "$HOME", "'", '"', ";", "new\nline", "", "ä")
    outcome, heard = workplace.launch(
        python, "-c", "import os, sys; print([os.getcwd(), *sys.argv[1:]])", *words, workdir=str(place)
    )
    assert outcome.exit_code == 0
    assert heard.text(1) == f"{[str(place), *words]}\n"


def test_reports_reach_the_listener(workplace, python):
    script = "import ringleader\nringleader.progress(samples=32)"
    outcome, heard = workplace.launch(python, "-c", script)
    assert outcome.exit_code == 0
    progress = [(rank, words["samples"]) for rank, words in heard.reports if words["kind"] == "progress"]
    assert sorted(progress) == [(0, 32), (1, 32)]


@pytest.mark.long
def test_unmodified_torchrun_script(workplace, python):
    pytest.importorskip("torch")
    outcome, heard = workplace.launch(python, "-c", programs.DDP)
    assert outcome.exit_code == 0, heard.all("stderr")
    (rank0, size0, sum0), (rank1, _, sum1) = heard.text(0).split(), heard.text(1).split()
    assert (rank0, rank1, size0) == ("0", "1", "2") and sum0 == sum1


def test_next_sitecustomize_still_runs(workplace, python):
    (workplace.tmp / "sitecustomize.py").write_text("import builtins; builtins.from_site = 'mine'")
    workplace.environ["PYTHONPATH"] = str(workplace.tmp)
    outcome, heard = workplace.launch(python, "-c", "print(from_site)")
    assert outcome.exit_code == 0 and heard.text(0) == "mine\n"


@pytest.mark.root("become another user; here all tests ran as one")
def test_runs_as_an_ordinary_user(workplace):
    nobody = 65534
    python, path = programs.interpreter_for(nobody)
    home = workplace.tmp / "h"
    home.mkdir()
    for place in (workplace.tmp, home):
        os.chown(place, nobody, nobody)
    environ = workplace.environ | {"TMPDIR": str(home), "HOME": str(home), "PYTHONPATH": path}
    mpirun = find_mpi("embedded", environ=os.environ).mpirun
    script = (python, "-c", programs.ALLREDUCE)
    done = subprocess.run(
        (python, "-m", "ringleader", "run", "-n", "2", "--oversubscribe", "--mpi", mpirun, *script),
        user=nobody, group=nobody, extra_groups=[], env=environ, cwd=home, capture_output=True, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == b"" and done.stdout.count(b"Open MPI v5") == 2
    assert not (home / f"ringleader-{nobody}").exists()
