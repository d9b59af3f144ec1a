"""The job of a collective test: what its ranks are told, and what becomes of their answers."""

import io
import itertools
import json
import signal
import threading
from pathlib import Path

import pytest
from tests.job_outcomes import outcome_of

from ringleader.bench import run_file
from ringleader.bench.collective_job import measure
from ringleader.bench.collective_plan import CollectivePlan, cases
from ringleader.bench.collective_program import OperationDeadline
from ringleader.cli.bench.collectives import complaints, exit_code
from ringleader.dataclass_json import from_document
from ringleader.errors import RefusedError, StoppedError
from ringleader.launch.rank_answer import parts_of
from ringleader.measurements.collective import CollectiveRun, Sweep, Timing, WrongResult
from ringleader.plan.job import Host, Job
from ringleader.scaling import Context

PLAN = CollectivePlan(
    operation="allreduce", implementations=("ringleader", "mpi"), sizes=(1024, 4096), iterations=20
)

EMPTY = CollectiveRun(
    name="x",
    context=Context(command=("ringleader", "bench", "allreduce")),
    operation="allreduce",
    ranks=2,
    per_host=0,
    dtype=PLAN.dtype,
    redop=PLAN.redop,
    sweep=Sweep(minimum=1024, maximum=4096, step_factor=4),
)


class Cluster:
    """A launcher whose ranks answer at once; ``wrong``: elements on rank 1 at the second size."""

    def __init__(self, *, wrong=0, stuck=None, refused=""):
        self.wrong, self.stuck, self.refused = wrong, stuck or {}, refused

    def __call__(self, job, *, environ, listener):
        plan = from_document(CollectivePlan, json.loads(job.command[-1]))

        def say(rank, name, **value):
            for part in parts_of(name, value):
                listener.report(rank, part)

        for rank in range(job.np):
            if self.refused:
                say(rank, "refused", what=self.refused, hint="leave out --memory")
            else:
                say(rank, "place", hostname=f"node{rank}", pid=10 + rank, device="", machine=f"m{rank}")
        if not self.refused:
            for _ in range(2):
                say(0, "note", implementation="mpi", what="MPI has no float16 to reduce")
            for number, (size, count) in enumerate(cases(plan, job.np)):
                say(0, "result", **self.result(size, count, self.wrong if number else 0))
        for rank, step in self.stuck.items():
            say(rank, "stuck", step=step, what="allreduce of 4 KiB by mpi, in place", seconds=60.0)
        code = 1 if self.stuck or self.refused else 0
        return outcome_of(job, code, whose="rank 0", reason="rank 0 ended with 1")

    @staticmethod
    def result(size, count, wrong):
        timing = {"seconds": 1e-3, "low": 0.9e-3, "high": 1.1e-3, "wrong": 0}
        bad = {"implementation": "mpi", "size": size, "in_place": True, "rank": 1, "wrong": wrong}
        at = {"size": size, "count": count}
        series = {
            "ringleader": {**at, "iterations": 20, "out_of_place": timing, "in_place": timing},
            "mpi": {**at, "iterations": 7, "in_place": timing | {"wrong": wrong}},
        }
        return {"size": size, "series": series, "wrong": [bad] if wrong else []}


def measured(cluster, plan=PLAN, kept=None):
    job = Job(command=("ignored",), hosts=tuple(Host(name=name, slots=1) for name in ("h1", "h2")), np=2)
    kept = [] if kept is None else kept
    run = measure(
        job,
        plan,
        EMPTY,
        environ={},
        progress=lambda text: None,
        keep=kept.append,
        launch=cluster,
    )
    return run, kept


def test_results_become_series_and_are_kept_after_each_size(tmp_path):
    run, kept = measured(Cluster())
    assert [len(one.series[0].results) for one in kept] == [1, 2, 2] and kept[-1] == run
    ours, mpi = run.series
    assert ours.results[0].out_of_place == Timing(seconds=1e-3, low=0.9e-3, high=1.1e-3, wrong=0)
    assert (mpi.results[1].iterations, mpi.results[1].out_of_place) == (7, None)
    assert (ours.note, mpi.note) == ("", "MPI has no float16 to reduce")
    assert (run.per_host, run.ranks, run.failure, run.wrong) == (1, 2, "", 0)
    assert [host.name for host in run.context.hosts] == ["h1", "h2"] and run.context.mpi == "openmpi5 5.0.11"
    assert [(process.host, process.pid) for process in run.processes] == [("node0", 10), ("node1", 11)]
    run_file.write(run, tmp_path)
    assert run_file.read_any(tmp_path) == run
    assert exit_code(run) == 0 and complaints(run) == []


def test_wrong_results_are_named_and_have_a_code_of_their_own():
    run, _ = measured(Cluster(wrong=3))
    assert run.wrong == 3 and exit_code(run) == 1
    assert run.wrong_results == (
        WrongResult(implementation="mpi", size=4096, in_place=True, rank=1, wrong=3),
    )
    (line,) = complaints(run)
    assert line == "wrong results: mpi, allreduce of 4096 bytes, in place: 3 elements on rank 1"


@pytest.mark.parametrize(
    ("stuck", "behind"),
    [
        ({0: 7, 1: 6}, "; not there: rank 1 on h2"),
        ({0: 7, 1: 7}, ""),
    ],
)
def test_a_rank_that_hangs_is_named_by_those_that_waited(stuck, behind):
    run, _ = measured(Cluster(stuck=stuck))
    assert run.failure == f"allreduce of 4 KiB by mpi, in place: not done after 60 s{behind}"
    assert len(run.series[0].results) == 2 and exit_code(run) == 3


def test_what_was_measured_before_a_signal_is_kept_with_that_reason():
    class Stopped(Cluster):
        def __call__(self, job, *, environ, listener):
            super().__call__(job, environ=environ, listener=listener)
            raise StoppedError(signal.SIGTERM, "the measurement had ended")

    kept = []
    with pytest.raises(StoppedError):
        measured(Stopped(), kept=kept)
    assert "SIGTERM" in kept[-1].failure and len(kept[-1].series[0].results) == 2


def refused(call, *words):
    code, out, err = call("bench", *words)
    assert (code, out) == (2, "")
    return err


def test_a_file_of_nccl_tests_is_printed_and_kept(tmp_path, call, monkeypatch):
    file = tmp_path / "out.txt"
    file.write_text(
        "#  Rank  0 Group  0 Pid      1 on          a device  0 [0000:06:00] NVIDIA H200\n"
        "#  Rank  1 Group  0 Pid      2 on          a device  1 [0000:07:00] NVIDIA H200\n"
        "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
        "  1048576  262144  float  sum  -1  100.00  10.49  10.49  0  200.00  5.24  5.24  0\n"
        "# Out of bounds values : 0 OK\n"
    )
    words = ["bench", "allreduce", "--from-file", str(file), "-o", str(tmp_path), "--name", "x"]
    code, printed, _ = call(*words)
    assert not code and "   100.00   10.49   10.49       0   200.00    5.24    5.24" in printed
    monkeypatch.setattr("sys.stdin", io.StringIO(file.read_text()))
    monkeypatch.chdir(tmp_path)
    # Kept without --name, too, as bench p2p does.
    assert call("bench", "allreduce", "--from-file", "-")[:2] == (0, printed)
    assert len(list(tmp_path.glob("runs/allreduce-*/run.json"))) == 1
    assert run_file.read_any(tmp_path / "x").series[0].results[0].size == 1048576
    assert "already exists" in refused(call, *words[1:])
    assert "nothing is measured" in refused(call, *words[1:], "--against", "mpi")
    code, _, err = call(*words, "--replace", "--json-file", "/dev/full")
    assert code == 3 and f"kept in {tmp_path / 'x'}" in err
    file.write_text(file.read_text().replace(" 0\n", " 4\n", 1))
    code, _, err = call(*words, "--replace")
    assert code == 1 and "wrong results: 4 elements" in err


def test_a_reduction_is_not_taken_for_a_directory(tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = refused(call, "allreduce", "-n", "2", "-o", "sum")
    assert "sum is a reduction" in told and "--redop sum" in told and "-o ./sum" in told
    assert "--redop" not in refused(call, "allgather", "-n", "2", "-o", "max")
    assert "add --memory cuda" in refused(call, "allreduce", "-n", "2", "--against", "nccl")
    Path("sum").mkdir()
    words = ("-n", "2", "-o", "sum", "-b", "8", "-e", "512", "-f", "8", "--dry-run")
    code, printed, _ = call("bench", "allreduce", *words)
    assert not code and "sizes\t8 64 512\n" in printed and "collective_program" in printed
    with pytest.raises(RefusedError, match="rank 0 on h1: PyTorch sees no GPU"):
        measured(Cluster(refused="PyTorch sees no GPU"))


def test_all_that_is_wrong_is_told_at_once(call):
    said = refused(
        call,
        *("allgather", "-n", "2", "-b", "x", "-f", "2", "-i", "1K", "-d", "f8", "--redop", "sum"),
        *("--root", "1", "--against", "mpi,foo", "--memory", "tape", "--seconds", "-1", "--iters", "0"),
    )
    wheres = (
        "--minbytes: 'x'|-f and -i:|--datatype: 'f8'|--redop: allgather|--root: allgather|--against: 'foo'"
    )
    for where in f"{wheres}|--memory: 'tape'|--seconds: -1|--iters: 0".split("|"):
        assert where in said, where


def test_an_operation_that_does_not_return_ends_its_rank_with_words():
    told, ended, ticks = [], threading.Event(), itertools.count()

    def tell(name, value):
        told.append((name, value))
        ended.set()

    deadline = OperationDeadline(tell=tell, end=lambda code: None, clock=lambda: float(next(ticks)))
    with deadline.within(1e9, "the first"):
        pass
    with deadline.within(0.5, "the second"):
        assert ended.wait(30)
    assert told == [("stuck", {"step": 2, "what": "the second", "seconds": 0.5})]
