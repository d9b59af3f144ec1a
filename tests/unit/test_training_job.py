"""The job of ``ringleader bench train`` with scripted ranks: what becomes of answers, failures and faults."""

from dataclasses import asdict

import pytest
from tests.job_outcomes import outcome_of

from ringleader.bench.training.step_split import RankTimes
from ringleader.bench.training.training_job import TrainingAnswers, measure
from ringleader.bench.training.training_plan import TrainingPlan
from ringleader.errors import LaunchError, RankError, RequestError, StoppedError
from ringleader.launch.rank_answer import parts_of
from ringleader.plan.job import Job
from ringleader.scaling import Context

PLAN = TrainingPlan(model="mlp", batch=2, num_classes=10, repeats=2, steps=1)
PARTS = {"input": 0.0, "forward": 0.1, "backward": 0.2, "exposed": 0.1, "optimizer": 0.1, "losses": 2.0}
TIMES = RankTimes(elapsed=0.5, **{name: (value,) for name, value in PARTS.items()})
START = (
    (0, "size", {"ranks": 2, "per_host": 2}),
    (0, "arms", {"ringleader": ""}),
    (0, "host", {"hostname": "n", "torch": "2.9", "threads": 1, "device": "cpu"}),
    (0, "model", {"parameters": 100}),
)


def times(rank, repetition):
    return rank, "times", {"arm": "ringleader", "repetition": repetition, "times": asdict(TIMES)}


def turn(rank, repetition):
    return rank, "round", {"arm": "ringleader", "repetition": repetition}


def run(*answers, end=0, kept=None):
    """Let ranks answer; ``end``: the job's exit code, or what its launch raises. Return (code, kept runs)."""
    kept = [] if kept is None else kept

    def launch(job, *, environ, listener):
        for rank, name, value in answers:
            for part in parts_of(name, value):
                listener.report(rank, part)
        if isinstance(end, Exception):
            raise end
        return outcome_of(job, end, reason="rank 1 was killed")

    code = measure(
        TrainingAnswers(name="t", context=Context(command=("x",)), plan=PLAN),
        Job(command=()),
        environ={},
        progress=lambda text: None,
        keep=kept.append,
        launch=launch,
    )
    return code, kept


def test_a_run_is_kept_with_each_repetition():
    code, kept = run(*START, times(0, 1), times(1, 1), times(1, 2), times(0, 2))
    assert code == 0 and [len(one.arm("ringleader").rates) for one in kept] == [1, 2, 2]
    last, context = kept[-1], kept[-1].context
    assert (last.failure, last.device, last.gradient_bytes) == ("", "cpu", 400)
    assert (context.threads, context.torch, context.mpi) == (1, "2.9", "openmpi5 5.0.11")


def test_a_rank_that_fails_later_loses_nothing_and_all_are_told_of():
    answers = (*START, times(0, 1), times(1, 1), turn(0, 2), turn(1, 1))
    for end, code in ((137, 137), (LaunchError("h2 is lost"), 3)):
        returned, kept = run(*answers, end=end)
        assert returned == code and len(kept[-1].arm("ringleader").rates) == 1
        why = "h2 is lost" if code == 3 else "rank 1 was killed"
        told = "rank 0 in ringleader, repetition 2 of 2; rank 1 in ringleader, repetition 1 of 2"
        assert kept[-1].failure == f"training mlp: {why}; last heard: {told}"


def test_an_interrupted_run_says_so():
    kept = []
    with pytest.raises(StoppedError):
        run(*START, times(0, 1), times(1, 1), end=StoppedError(2, "it had ended"), kept=kept)
    assert "SIGINT" in kept[-1].failure and len(kept[-1].arm("ringleader").rates) == 1


def test_weights_that_differ_fail_the_run():
    digests = [(rank, "digests", {"ringleader": digest}) for rank, digest in enumerate("ab")]
    code, kept = run(*START, times(0, 1), times(1, 1), *digests)
    assert code == 3 and kept[-1].failure == "ringleader: the weights at the end differ: rank 0; rank 1"


def test_what_ranks_find_wrong_is_the_requests_fault():
    with pytest.raises(RequestError, match="--data: /x is not a directory"):
        run(START[0], (0, "faults", ["--data: /x is not a directory"]), (1, "faults", []))


def test_a_job_that_never_begins_is_an_error():
    for end, code in ((1, 1), (0, 3)):
        with pytest.raises(RankError) as error:
            run(START[0], end=end)
        assert error.value.exit_code == code
