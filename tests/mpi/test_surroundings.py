"""What a job finds around it: closed streams, no home, odd directories, many ranks, much output."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import programs

from ringleader.launch.mpirun.mpi_discovery import find_mpi

pytestmark = pytest.mark.mpi

RUN = ("run", "-n", "2", "--oversubscribe")
NOBODY = 65534


def in_shell(workplace, redirections, *words):
    """Run the command line in a shell that closes some of its standard streams."""
    script = f'"$@" {redirections}; echo "code $?" >code'
    process = subprocess.run(
        ("sh", "-c", script, "sh", sys.executable, "-m", "ringleader", *words),
        env=workplace.environ,
        cwd=workplace.tmp,
        capture_output=True,
        timeout=90,
    )
    return (workplace.tmp / "code").read_text().strip(), process.stdout, process.stderr


@pytest.mark.parametrize("redirections", ["<&- >&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(workplace, redirections):
    # Rank 1 fails only when rank 0 has said everything: the stop that follows would cut it short.
    script = "cat; echo $RANK >out.$RANK; echo said; echo err >&2; : >done.$RANK; n=0; "
    script += "until [ -e done.0 ] || [ $n = 300 ]; do sleep 0.1; n=$((n + 1)); done; exit $RANK"
    code, out, err = in_shell(workplace, redirections, *RUN, "sh", "-c", script)
    assert code == "code 1"
    assert [(workplace.tmp / f"out.{rank}").read_text() for rank in (0, 1)] == ["0\n", "1\n"]
    assert b"Traceback" not in err
    if ">&-" not in redirections.replace("2>&-", ""):
        assert sorted(out.splitlines()) == [b"[0] said", b"[1] said"]
    if "2>&-" not in redirections:
        assert err.splitlines()[-1] == b"ringleader: exit code 1 (rank 1)"


def test_a_refusal_with_closed_streams(workplace):
    code, out, err = in_shell(workplace, ">&-", "run", "-n", "0", "true")
    assert code == "code 2" and out == b"" and b"Traceback" not in err


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


@pytest.mark.long
def test_sixty_four_ranks_on_however_few_cores(workplace):
    done = workplace.run("run", "-n", "64", "--oversubscribe", "sh", "-c", "echo $RANK of $WORLD_SIZE")
    # A busy machine is slow enough for progress to be reported.
    said = [line for line in done.stderr.splitlines() if not line.endswith(b" of 64 ranks have reported")]
    assert (done.returncode, said) == (0, [])
    assert sorted(done.stdout.splitlines()) == sorted(b"[%d] %d of 64" % (rank, rank) for rank in range(64))
