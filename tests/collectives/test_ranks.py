"""Training, endings and lives of the engine on real ranks."""

import json
import re
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.collectives.layouts import programs

pytestmark = [pytest.mark.mpi, pytest.mark.torch]
PATIENCE = {"RINGLEADER_MISMATCH_PATIENCE": "0.2"}
RINGLEADER = str(Path(sys.executable).with_name("ringleader"))


@programs(
    ("training.py", "2+1!", "1 2 3 2x2 2x1"),
    # With process sets and operations that nobody waits for; nothing is left mapped or open.
    ("lives.py 100", "1", "2 3"),
    ("lives.py 30", "2", ""),
    ("lives.py 12", "2x1", "2x2"),
    ("joining.py", "1 2 3 2x1", "2x2"),
    ("joining.py", "", "4", {"RINGLEADER_TRANSPORT": "mpi"}),
    # Names, orders, members, kinds, shapes, types and roots: right, or an error on all ranks.
    ("swapped.py 15", "2 2x2", "", PATIENCE),
    ("swapped.py 15", "3", "", PATIENCE | {"RINGLEADER_TRANSPORT": "mpi"}),
    ("swapped.py 60", "", "2 2x2", PATIENCE),
    ("threads.py", "2", ""),
)
def test_programs(jobs: Any, program: str, layout: Any, environ: dict[str, str]) -> None:
    jobs.pass_on(layout, program, **environ)


@pytest.mark.parametrize(
    ("how", "per_host"),
    [
        ("returns", ""),
        *(
            pytest.param(*one, marks=pytest.mark.long)
            for one in (("shuts down", "1"), ("returns", "1"), ("shuts down", ""), ("raises", "1"))
        ),
        ("is killed", ""),
        pytest.param("is late", "", marks=pytest.mark.long),
    ],
)
def test_a_rank_leaves_while_another_waits(jobs: Any, how: str, per_host: str) -> None:
    start = jobs if how == "shuts down" else partial(jobs.fresh, forked=how == "is killed")
    job = start("ending.py", how, ranks=2, timeout=60, RINGLEADER_RANKS_PER_HOST=per_host)
    # mpirun may end the waiting rank before it can say anything: either is an end without a hang.
    assert (job.code == 0) == (how not in ("raises", "is killed")), job.err
    if how == "raises":
        assert "this rank's own mistake" in job.err
    elif how == "is late":
        assert job.err == ""
    elif how != "is killed":
        word = {"returns": "has ended", "shuts down": "was shut down (hvd.shutdown)"}[how]
        assert f"rank 1 {word} while rank 0 waits in allreduce 'allreduce.loss'" in job.out


@pytest.mark.long
def test_a_rank_that_exits_with_a_code_is_not_held_by_ranks_that_its_end_has_ended(jobs: Any) -> None:
    """Ended by the launcher, the others do not come to what ranks free together."""
    program = (
        "import sys, ringleader.torch as hvd; hvd.init(); hvd.barrier(); sys.exit(5 * (hvd.rank() == 1))"
    )
    run = [RINGLEADER, "run", "--oversubscribe", "-n", "3", "--grace", "20"]
    job = jobs.run([*run, sys.executable, "-c", program])
    assert job.code == 5 and "waiting for rank" not in job.err, job.err


@pytest.mark.parametrize("starter", ["ringleader", pytest.param("mpi4py", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("way", "code"),
    [
        ("sys.exit(5)", 5),
        pytest.param("raise SystemExit(6)", 6, marks=pytest.mark.long),
        pytest.param("sys.exit('words')", 1, marks=pytest.mark.long),
        pytest.param("pass", 0, marks=pytest.mark.long),
    ],
    ids=["exit", "SystemExit", "words", "returns"],
)
def test_a_rank_that_others_have_left_ends_with_its_own_exit_code(
    jobs: Any, tmp_path: Path, starter: str, way: str, code: int
) -> None:
    """Under mpirun alone, where no launcher knows the code. ``starter`` initializes MPI."""
    (tmp_path / "script.py").write_text(
        ("from mpi4py import MPI\n" if starter == "mpi4py" else "") + "import sys\nfrom pathlib import Path\n"
        "from ringleader.adapters.basics import barrier, begin_session, rank\n"
        "from ringleader.adapters.numpy_adapter import NumpyAdapter\n"
        "begin_session(NumpyAdapter, None, None)\nbarrier()\nraised = Path(__file__).with_name('raised')\n"
        "def note(*_arguments):\n    raised.touch()\n"
        "if rank() == 1:\n    sys.excepthook = note\n    raise RuntimeError\n"
        "import time\nwhile not raised.exists():\n    time.sleep(0.01)\n"
        f"{way}\n"
    )
    ended = "echo $? > code$OMPI_COMM_WORLD_RANK"
    # Shells outlive their ranks until both codes are known: mpirun stops what is left after the first.
    both = "until [ -s code0 ] && [ -s code1 ]; do sleep 0.1; done"
    mpirun = str(Path(sys.executable).with_name("mpirun"))
    shell = f"cd {shlex.quote(str(tmp_path))}; {shlex.quote(sys.executable)} script.py; {ended}; {both}"
    jobs.run([mpirun, "--oversubscribe", "-n", "2", "sh", "-c", shell], timeout=60)
    codes = [(tmp_path / f"code{rank}").read_text().strip() for rank in range(2)]
    assert codes == [str(code), "1"]


def test_ranks_that_call_different_operations(jobs: Any) -> None:
    job = jobs("ending.py", "calls something else", ranks=3, RINGLEADER_MISMATCH_PATIENCE="0.5")
    assert job.code == 0, job.err
    assert job.out.count("rank done") == 3
    assert job.out.count("Mismatched operations, and every rank waits") == 3
    assert "rank 2 for 'barrier.noname'" in job.out


@pytest.mark.long
def test_a_rank_that_never_joins(jobs: Any, tmp_path: Path) -> None:
    """Only the launcher's file tells of it, or nobody: then a deadline ends every wait."""
    status = tmp_path / "status"
    status.write_text('not json\n{"ended": [[1, 1]], "exit_code": 7}\n{"ended": ')
    job = jobs.fresh("silent.py", ranks=2, timeout=60, RINGLEADER_STATUS_FILE=str(status))
    assert "rank 1 has ended with exit code 7 while rank 0 waits in barrier" in job.out, job.err
    soon = {"RINGLEADER_DEADLINE": "1.5", "RINGLEADER_STALL_WARNING": "0.5"}
    job = jobs.fresh("silent.py", ranks=2, timeout=60, **soon)
    assert "rank 0 waited" in job.out
    assert "in barrier 'barrier.noname' for rank 1" in job.out
    assert "ringleader: rank 0 has waited" in job.err


STALL = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1"}


@pytest.mark.parametrize(
    ("how", "environ"),
    [
        ("told", STALL),
        ("told", {"HOROVOD_STALL_CHECK_DISABLE": "1"}),
        ("others continue", STALL | {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2"}),
        ("never calls", STALL | {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2"}),
    ],
)
def test_a_stall_is_told_with_the_tensor_and_the_missing_ranks(
    jobs: Any, how: str, environ: dict[str, str]
) -> None:
    ranks = 3 if how == "told" else 2
    job = jobs("stalling.py", how, ranks=ranks, **environ)
    assert job.out.count("rank done") == ranks, job.err
    told = r"ringleader: 'allreduce\.missing' has waited \d s for rank 1 to ask for it too"
    assert how != "told" or bool(re.search(told, job.err)) == (environ == STALL), job.err
    assert ("allreduce.missing" in job.out) == (how != "told"), job.out


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "per_host"),
    [pytest.param(1, "", marks=pytest.mark.long), pytest.param(2, "", marks=pytest.mark.long), (3, "1")],
)
def test_forked_children_are_not_ranks(jobs: Any, size: int, per_host: str, tmp_path: Path) -> None:
    """Their ends are their own: nothing of the parent's is told, parted from or finalized."""
    trace = tmp_path / "trace"
    environ = {"RINGLEADER_RANKS_PER_HOST": per_host, "HOROVOD_TIMELINE": str(trace)}
    jobs.fresh("forking.py", ranks=size, timeout=90, **environ).passed(size)
    assert json.loads(trace.read_text())
    if size == 1:  # without MPI a child is as good as its parent
        jobs.run([sys.executable, str(jobs.programs / "forking.py")]).passed(1)


@pytest.mark.parametrize(
    ("size", "per_host"),
    [(3, ""), pytest.param(2, "1", marks=pytest.mark.long)],
    ids=["one host", "two hosts"],
)
def test_a_rank_that_gives_up_alone(jobs: Any, size: int, per_host: str, tmp_path: Path) -> None:
    """The others do not wait for it as long as it lives, and its exception is what was raised."""
    environ = {"RINGLEADER_RANKS_PER_HOST": per_host}
    jobs.fresh("giving_up.py", str(tmp_path), ranks=size, **environ).passed(size)


@pytest.mark.long
@pytest.mark.parametrize("starter", ["ringleader", "mpi4py"])
def test_a_rank_that_leaves_without_a_word(jobs: Any, starter: str) -> None:
    """The launcher knows, so the others end too, each with its own exit code."""
    command = [RINGLEADER, "run", "-n", "2", "--oversubscribe", sys.executable]
    job = jobs.run([*command, str(jobs.programs / "leaving.py"), starter], timeout=90)
    assert (job.code, job.out.count("rank done")) == (0, 1), job.err
    assert "rank 0 has ended with exit code 0 while rank 1 waits in its end" in job.err


def test_another_library_than_the_launchers(jobs: Any) -> None:
    """A launcher that counts two ranks and a library that sees one do not belong together."""
    program = (
        "from ringleader.adapters.basics import begin_session\n"
        "from ringleader.adapters.numpy_adapter import NumpyAdapter\n"
        "begin_session(NumpyAdapter, None, None)"
    )
    job = jobs.run([sys.executable, "-c", program], OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0")
    assert job.code == 1
    assert "the launcher started 2 ranks but Open MPI" in job.err
    assert "MPI4PY_LIBMPI" in job.err


@pytest.mark.parametrize("per_host", ["2", pytest.param("1", marks=pytest.mark.long)])
def test_the_report_of_a_step(jobs: Any, per_host: str) -> None:
    """Time in which rank 0 stands still for rank 1 is waiting, no exchange: on one host and on several."""
    job = jobs("reporting.py", ranks=2, RINGLEADER_REPORT_FD="1", RINGLEADER_RANKS_PER_HOST=per_host)
    assert job.code == 0, job.err
    reports = [json.loads(line) for line in job.out.splitlines() if '"step"' in line]
    assert len(reports) >= 2
    for report in reports:
        assert min(report[name] for name in ("steps", "step_seconds", "exchange_seconds")) > 0
    assert max(report["waiting_seconds"] / report["steps"] for report in reports) > 0.02
    assert all(report["waiting_seconds"] >= 0 for report in reports)
