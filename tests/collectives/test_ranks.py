"""Training, endings and lives of the engine on real ranks."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.torch]


@pytest.mark.long
@pytest.mark.parametrize("size", [1, 2, 3])
def test_training_equals_one_rank(jobs: Any, size: int) -> None:
    jobs("training.py", ranks=size).passed(size)


@pytest.mark.parametrize(
    ("size", "per_host"),
    [
        *(pytest.param(*one, marks=pytest.mark.long) for one in ((4, 2), (2, 1))),
        pytest.param(3, 2, marks=pytest.mark.smoke),
    ],
    ids=["2x2", "2x1", "unequal 2+1"],
)
def test_training_on_several_hosts(jobs: Any, size: int, per_host: int) -> None:
    jobs("training.py", ranks=size, RINGLEADER_RANKS_PER_HOST=str(per_host)).passed(size)


@pytest.mark.parametrize(
    ("how", "word", "per_host"),
    [
        ("returns", "has ended", ""),
        pytest.param("shuts down", "was shut down (hvd.shutdown)", "1", marks=pytest.mark.long),
        pytest.param("returns", "has ended", "1", marks=pytest.mark.long),
        pytest.param("shuts down", "was shut down (hvd.shutdown)", "", marks=pytest.mark.long),
    ],
)
def test_a_rank_leaves_while_another_waits(jobs: Any, how: str, word: str, per_host: str) -> None:
    environ = {"RINGLEADER_RANKS_PER_HOST": per_host}
    if how == "returns":
        job = jobs.fresh("ending.py", how, ranks=2, forked=False, timeout=60, **environ)
    else:
        job = jobs("ending.py", how, ranks=2, timeout=60, **environ)
    assert job.code == 0, job.err
    assert f"rank 1 {word} while rank 0 waits in allreduce 'allreduce.loss'" in job.out


@pytest.mark.long
@pytest.mark.parametrize("per_host", ["", "1"])
def test_a_rank_raises_while_another_waits(jobs: Any, per_host: str) -> None:
    environ = {"RINGLEADER_RANKS_PER_HOST": per_host}
    job = jobs.fresh("ending.py", "raises", ranks=2, forked=False, timeout=60, **environ)
    # mpirun may end the waiting rank before it can say anything: either is an end without a hang.
    assert job.code != 0
    assert "this rank's own mistake" in job.err


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_that_exits_with_a_code_is_not_held_by_ranks_that_its_end_has_ended(
    jobs: Any, ranks: int
) -> None:
    """Ended by the launcher, the others do not come to what ranks free together."""
    program = (
        "import sys, ringleader.torch as hvd; hvd.init(); hvd.barrier(); sys.exit(5 * (hvd.rank() == 1))"
    )
    run = [str(Path(sys.executable).with_name("ringleader")), "run", "--oversubscribe", "-n", str(ranks)]
    job = jobs.run([*run, "--grace", "20", sys.executable, "-c", program])
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


def test_a_rank_is_killed_while_another_waits(jobs: Any) -> None:
    assert jobs.fresh("ending.py", "is killed", ranks=2, timeout=60).code != 0


@pytest.mark.long
def test_a_rank_that_is_late_to_its_end_is_waited_for(jobs: Any) -> None:
    job = jobs.fresh("ending.py", "is late", ranks=2, forked=False, timeout=60)
    assert (job.code, job.err) == (0, "")


def test_ranks_that_call_different_operations(jobs: Any) -> None:
    job = jobs("ending.py", "calls something else", ranks=3, RINGLEADER_MISMATCH_PATIENCE="0.5")
    assert job.code == 0, job.err
    assert job.out.count("rank done") == 3
    assert job.out.count("Mismatched operations, and every rank waits") == 3
    assert "rank 2 for 'barrier.noname'" in job.out


@pytest.mark.long
def test_the_launcher_tells_of_an_end(jobs: Any, tmp_path: Path) -> None:
    """A rank that never joins, and of which only the launcher's file tells, does not hold up the others."""
    status = tmp_path / "status"
    status.write_text('not json\n{"ended": [[1, 1]], "exit_code": 7}\n{"ended": ')
    job = jobs.fresh("silent.py", ranks=2, timeout=60, RINGLEADER_STATUS_FILE=str(status))
    assert "rank 1 has ended with exit code 7 while rank 0 waits in barrier" in job.out, job.err


@pytest.mark.long
def test_a_deadline_ends_every_wait(jobs: Any) -> None:
    job = jobs.fresh(
        "silent.py", ranks=2, timeout=60, RINGLEADER_DEADLINE="1.5", RINGLEADER_STALL_WARNING="0.5"
    )
    assert "rank 0 waited" in job.out
    assert "in barrier 'barrier.noname' for rank 1" in job.out
    assert "ringleader: rank 0 has waited" in job.err


@pytest.mark.parametrize(
    ("size", "per_host"),
    [
        pytest.param(1, "", marks=pytest.mark.long),
        pytest.param(2, "", marks=pytest.mark.long),
        (2, "1"),
        pytest.param(4, "2", marks=pytest.mark.long),
    ],
)
def test_many_lives(jobs: Any, size: int, per_host: str) -> None:
    jobs("life.py", ranks=size, RINGLEADER_RANKS_PER_HOST=per_host).passed(size)


@pytest.mark.parametrize(
    ("size", "per_host", "lives"),
    [
        (1, "", 100),
        (2, "", 30),
        pytest.param(4, "2", 20, marks=pytest.mark.long),
        pytest.param(2, "", 100, marks=pytest.mark.long),
        pytest.param(3, "", 100, marks=pytest.mark.long),
    ],
)
def test_life_after_life(jobs: Any, size: int, per_host: str, lives: int) -> None:
    """With process sets and operations that nobody waits for; nothing is left mapped or open."""
    jobs("lives.py", str(lives), ranks=size, RINGLEADER_RANKS_PER_HOST=per_host).passed(size)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_joining(jobs: Any, size: int) -> None:
    jobs("joining.py", ranks=size).passed(size)


@pytest.mark.parametrize(
    ("size", "per_host", "transport"),
    [
        (2, "1", ""),
        pytest.param(4, "2", "", marks=pytest.mark.long),
        pytest.param(4, "2", "mpi", marks=pytest.mark.long),
    ],
)
def test_joining_between_hosts(jobs: Any, size: int, per_host: str, transport: str) -> None:
    environ = {"RINGLEADER_RANKS_PER_HOST": per_host, "RINGLEADER_TRANSPORT": transport}
    jobs("joining.py", ranks=size, **environ).passed(size)


def test_a_stall_is_told_with_the_tensor_and_the_missing_ranks(jobs: Any) -> None:
    job = jobs("stalling.py", "told", ranks=3, HOROVOD_STALL_CHECK_TIME_SECONDS="1")
    assert job.out.count("rank done") == 3, job.err
    assert re.search(
        r"ringleader: 'allreduce\.missing' has waited \d s for rank 1 to ask for it too", job.err
    )


def test_a_stall_that_is_not_to_be_told(jobs: Any) -> None:
    job = jobs("stalling.py", "told", ranks=3, HOROVOD_STALL_CHECK_DISABLE="1")
    job.passed(3)


@pytest.mark.parametrize("how", ["others continue", "never calls"])
def test_a_stall_ends_the_engine(jobs: Any, how: str) -> None:
    job = jobs(
        "stalling.py",
        how,
        ranks=2,
        HOROVOD_STALL_CHECK_TIME_SECONDS="1",
        HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="2",
    )
    assert job.out.count("rank done") == 2, job.err
    assert "allreduce.missing" in job.out


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
    ringleader = str(Path(sys.executable).with_name("ringleader"))
    command = [ringleader, "run", "-n", "2", "--oversubscribe", sys.executable]
    job = jobs.run([*command, str(jobs.programs / "leaving.py"), starter], timeout=90)
    assert (job.code, job.out.count("rank done")) == (0, 1), job.err
    assert "rank 0 has ended with exit code 0 while rank 1 waits in its end" in job.err


@pytest.mark.parametrize("times", ["15", pytest.param("60", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("size", "environ"),
    [
        (2, {}),
        (3, {"RINGLEADER_TRANSPORT": "mpi"}),
        (4, {"RINGLEADER_RANKS_PER_HOST": "2"}),
    ],
    ids=["2", "plain MPI", "2x2"],
)
def test_ranks_that_swap_operations(jobs: Any, size: int, environ: dict[str, str], times: str) -> None:
    """Names, orders, members, kinds, shapes, types, reductions and roots: right, or an error on all ranks."""
    jobs("swapped.py", times, ranks=size, RINGLEADER_MISMATCH_PATIENCE="0.2", **environ).passed(size)


def test_threads(jobs: Any) -> None:
    jobs("threads.py", ranks=2).passed(2)


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
