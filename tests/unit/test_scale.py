"""The order of the runs, what a run tells, and what stays when one fails: with a scripted launcher."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests import fabric_hosts
from tests.job_outcomes import outcome_of

from ringleader.bench import run_file
from ringleader.bench.run_file import script_name
from ringleader.bench.scale import measurement
from ringleader.bench.scale.measurement import ScaleRequest, SizeRun, faults_of, job_of, points_of, runs_left
from ringleader.bench.scale.meter import Meter, Track
from ringleader.bench.scale.sizes import parse_grid
from ringleader.cli.scale.options import threads_for
from ringleader.errors import LaunchError, RankError, RequestError
from ringleader.fabric.transport_proof.proof import HostProof, TransportProof, WireShares
from ringleader.fabric.wires import Wire
from ringleader.launch.outcome import Outcome
from ringleader.plan.job import Host, Job
from ringleader.report.scaling import repetitions
from ringleader.scaling import COUPLED, IN_STEP, Context, Point, Request, Run, Size, scalings, too_wide

GRID = parse_grid("1x1,1x2,2x2")
HOSTS = tuple(Host(name=f"h{n}", slots=2) for n in (1, 2))
RUN = Run(
    name="r", context=Context(command=()), points=points_of(GRID), repeats=2, warmup=0.2, request=Request()
)
ASKED = ScaleRequest(job=Job(command=("python", "train.py"), hosts=HOSTS), run=RUN)


def asked(job: Job = ASKED.job, **changes: object) -> ScaleRequest:
    """What is asked for, with another job, or a run that differs in some fields."""
    return replace(ASKED, job=job, run=replace(RUN, **changes))  # type: ignore[arg-type]


def runs(**changes: object) -> tuple[SizeRun, ...]:
    """All runs of a run that differs in some fields."""
    return runs_left(replace(RUN, **changes))  # type: ignore[arg-type]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Scripted:
    """A launcher whose ranks train 100 samples a second each, coupled ones 90."""

    clock: Clock = field(default_factory=Clock)
    jobs: list[Job] = field(default_factory=list)
    at: dict[int, Callable[[Job, Meter], int]] = field(default_factory=dict)
    """Number of the run → what happens there instead; returns the exit code."""
    proofs: dict[int, TransportProof] = field(default_factory=dict)
    """Number of the run → its proof."""
    rate: float = 0.0
    """Of the next run, where it is not 0."""

    def __call__(self, job: Job, *, environ: Mapping[str, str], listener: Meter) -> Outcome:
        self.jobs.append(job)
        number = len(self.jobs)
        listener.progress("hosts reached")
        listener.progress("")
        code = self.at.get(number, self.train)(job, listener)
        devices = {"h1": fabric_hosts.facts("hgx_ndr")} if number == 1 else {}
        return outcome_of(job, code, reason="it broke", proof=self.proofs.get(number), devices=devices)

    def train(self, job: Job, listener: Meter) -> int:
        assert job.np is not None
        rate = self.rate or (100.0 if job.uncoupled or job.np == 1 else 90.0)
        for rank in range(job.np):
            context = {"hostname": "h", "machine": "m", "cpu": "Example CPU", "python": "3.11.7", "torch": ""}
            listener.report(rank, {"kind": "context", **context})
        for step in range(1, 41):
            self.clock.now += 0.1
            for rank in range(job.np):
                listener.output(rank, "stdout", b"step %d\n" % step)
                progress = {"samples": rate * 0.1 * step, "seconds": 1000 * rank + self.clock.now}
                listener.report(rank, {"kind": "progress", "steps": step, **progress})
                times = {"step_seconds": 0.1, "exchange_seconds": 0.01, "waiting_seconds": 0.002}
                times = {name: seconds * step for name, seconds in times.items()}
                listener.report(rank, {"kind": "step", "steps": step, **times, "transport": "shared window"})
        return 0


def measure(
    launcher: Scripted, request: ScaleRequest = ASKED, stored: Run | None = None
) -> tuple[Run | None, list[Run], list[str], BaseException | None]:
    kept: list[Run] = []
    said: list[str] = []
    if stored is not None:
        request = resumed(request, stored)
    try:
        run = measurement.measure(
            request,
            launch=launcher,
            environ={},
            now=launcher.clock,
            date="2026-01-02T03:04:05+00:00",
            say=said.append,
            warn=said.append,
            keep=kept.append,
        )
    except BaseException as error:
        return None, kept, said, error
    return run, kept, said, None


def resumed(request: ScaleRequest, stored: Run) -> ScaleRequest:
    """The request to resume a stored run, with the sizes and repetitions of another request."""
    points, run = points_of(request.sizes, stored.points), request.run
    own = {"repeats": run.repeats, "budget": run.budget, "request": run.request, "in_step": run.in_step}
    return replace(request, run=replace(stored, points=points, failure="", **own))  # type: ignore[arg-type]


def measured(
    launcher: Scripted | None = None, request: ScaleRequest = ASKED, stored: Run | None = None
) -> Run:
    """What a launcher that does not fail measures."""
    run, _, _, error = measure(launcher or Scripted(), request, stored)
    assert error is None and run is not None, error
    return run


def test_every_size_has_its_turn_and_every_second_time_backwards() -> None:
    assert [str(one) for one in runs()] == [
        "1x1 coupled, repetition 1",
        "1x2 coupled, repetition 1",
        "1x2 uncoupled, repetition 1",
        "2x2 coupled, repetition 1",
        "2x2 uncoupled, repetition 1",
        "2x2 uncoupled, repetition 2",
        "2x2 coupled, repetition 2",
        "1x2 uncoupled, repetition 2",
        "1x2 coupled, repetition 2",
        "1x1 coupled, repetition 2",
    ]
    assert {one.kind for one in runs(repeats=3, uncoupled=False)} == {COUPLED}


def test_ranks_in_step_are_measured_next_to_uncoupled_ones() -> None:
    def sizes(in_step: str, **changes: object) -> tuple[Size, ...]:
        order = runs(in_step=in_step, repeats=1, **changes)
        return tuple(one.size for one in order if one.kind == IN_STEP)

    assert sizes("none") == () == sizes("largest", points=RUN.points[:1])
    assert sizes("largest") == GRID[2:] and sizes("all") == GRID[1:]
    order = runs(in_step="largest")
    assert [str(one) for one in order[4:8]] == [
        "2x2 uncoupled, repetition 1",
        "2x2 in step, repetition 1",
        "2x2 in step, repetition 2",
        "2x2 uncoupled, repetition 2",
    ]
    assert len(order) == 12
    launcher = Scripted()
    run = measured(launcher, asked(in_step="largest"))
    assert [len(point.in_step) for point in run.points] == [0, 0, 2]
    assert [(job.np, job.uncoupled) for job in launcher.jobs if job.in_step] == [(4, True)] * 2
    last = scalings(run)[-1]
    assert last.against_in_step is not None and last.against_in_step.median == pytest.approx(0.9)
    assert last.in_step_against_uncoupled.median == pytest.approx(1.0)


def test_ranks_in_step_that_fail_end_nothing() -> None:
    launcher = Scripted(at={6: lambda job, _meter: 3})
    run, _, said, error = measure(launcher, asked(in_step="largest"))
    assert error is None and run is not None and not run.failure
    assert launcher.jobs[5].in_step and sum(job.in_step for job in launcher.jobs) == 1
    assert [len(point.in_step) for point in run.points] == [0, 0, 0]
    assert [len(point.uncoupled) for point in run.points] == [0, 2, 2]
    assert any("barrier-only ranks are left out at 2x2" in text for text in said)


def varying(launcher: Scripted, *, until: int, part: float = 0.3) -> Scripted:
    """Coupled ranks of 2x2 are slower by ``part`` in every second of the first ``until`` runs of theirs."""
    seen = []

    def train(job: Job, listener: Meter) -> int:
        if (job.np, job.uncoupled) == (4, False):
            seen.append(job)
            launcher.rate = 90.0 * (1 - part * (len(seen) % 2)) if len(seen) <= until else 90.0
        else:
            launcher.rate = 0.0
        return Scripted.train(launcher, job, listener)

    launcher.at = dict.fromkeys(range(1, 1000), train)
    return launcher


def test_a_wide_size_is_repeated_with_its_baseline_until_its_interval_is_narrow() -> None:
    launcher = varying(Scripted(), until=3)
    run, kept, said, error = measure(launcher, asked(budget=10_000.0))
    assert error is None and run is not None and run == kept[-1]
    many = [(len(point.samples), len(point.uncoupled)) for point in run.points]
    one, two, four = many
    assert two == (2, 2), "narrow after the repetitions that were asked for"
    assert one == (four[0], 0) and four[0] == four[1] > 3
    assert too_wide(run) == {} and "2x2" in too_wide(
        replace(run, points=(*run.points[:2], first(run.points[2], 3)))
    )
    assert said[-1].startswith(f"run {len(launcher.jobs)} of {len(launcher.jobs)}: ")
    assert "2 to " in repetitions(run) and "all 95% intervals are at most 10% wide" in repetitions(run)


def first(point: Point, count: int) -> Point:
    return replace(point, samples=point.samples[:count], uncoupled=point.uncoupled[:count])


def test_no_repetition_ends_after_the_budget() -> None:
    launcher = varying(Scripted(), until=1000)
    # A run takes 4 s: 10 runs are asked for, a repetition of 2x2 has 3 more.
    run = measured(launcher, asked(budget=62.0))
    assert launcher.clock.now <= 62.0 < launcher.clock.now + 3 * 4.0
    assert [len(point.samples) for point in run.points] == [3, 2, 3]
    assert repetitions(run).startswith(
        "2 to 3; the budget of 62.0 s did not bring every 95% interval to 10%: 2x2 ("
    )


def test_a_run_with_a_budget_is_resumed_where_it_was_interrupted() -> None:
    request = asked(budget=10_000.0)
    whole = measure(varying(Scripted(), until=3), request)[0]
    launcher = varying(Scripted(), until=3)
    launcher.at[12] = lambda _job, _meter: 3
    _, kept, _, _ = measure(launcher, request)
    del launcher.at[12]
    again = Scripted(clock=launcher.clock, at=launcher.at)
    run = measure(again, request, stored=kept[-1])[0]
    assert run is not None and whole is not None
    assert too_wide(run) == {} == too_wide(whole)
    assert [len({len(ones) for kind, ones in point.kinds if ones}) for point in run.points] == [1, 1, 1]


def test_without_a_budget_nothing_is_repeated_further() -> None:
    run = measured(varying(Scripted(), until=1000))
    assert [len(point.samples) for point in run.points] == [2, 2, 2]
    assert repetitions(run) == "2"
    assert repetitions(replace(run, budget=5.0, points=())) == "2", "interrupted before the first one"


def test_coupled_and_uncoupled_differ_in_nothing_else() -> None:
    coupled, uncoupled = (job_of(one, ASKED) for one in runs(repeats=1)[3:])
    assert replace(uncoupled, uncoupled=False) == coupled
    assert (coupled.np, coupled.hosts) == (4, HOSTS)
    assert job_of(runs()[1], ASKED).hosts == HOSTS[:1]


def test_what_is_measured_is_what_the_ranks_did() -> None:
    run, kept, said, error = measure(Scripted())
    assert error is None
    assert run is not None and run == kept[-1]
    assert len(kept) == 10
    one, two, four = scalings(run)
    assert one.rate.median == pytest.approx(100)
    assert four.rate.median == pytest.approx(360)
    assert two.efficiency is not None and two.efficiency.median == pytest.approx(0.9)
    assert four.against_uncoupled is not None and four.against_uncoupled.median == pytest.approx(0.9)
    assert four.uncoupled_efficiency is not None and four.uncoupled_efficiency.median == pytest.approx(1.0)
    assert four.step is not None and four.step.total == pytest.approx(0.1)
    assert (four.step.exchange, four.step.waiting) == (pytest.approx(0.01), pytest.approx(0.002))
    assert run.points[2].samples[0].tail[-1] == "[3] step 40"
    assert "run 10 of 10: 1x1 coupled, repetition 2: 100.0/s\n" in said


def test_context_is_gathered_from_the_runs() -> None:
    run = measured()
    assert [(host.name, host.cpu, host.cores) for host in run.context.hosts] == [
        ("h1", "Example CPU", 2),
        ("h2", "Example CPU", 2),
    ]
    assert (run.context.mpi, run.context.python) == ("openmpi5 5.0.11", "3.11.7")
    assert run.context.transport == "shared window"
    assert run.context.one_machine


def test_a_failed_run_stops_with_its_code_and_keeps_the_rest() -> None:
    launcher = Scripted()

    def fail(job: Job, listener: Meter) -> int:
        listener.output(1, "stderr", b"ZeroDivisionError: division by zero\n")
        return 7

    launcher.at[4] = fail
    _, kept, _, error = measure(launcher)
    assert isinstance(error, RankError)
    assert (error.exit_code, error.whose) == (7, "rank 1")
    assert str(error) == ("2x2 coupled, repetition 1: it broke\n    [1] ZeroDivisionError: division by zero")
    assert len(launcher.jobs) == 4
    assert kept[-1].failure == "2x2 coupled, repetition 1: it broke"
    assert [len(point.samples) for point in kept[-1].points] == [1, 1, 0]
    assert len(kept[-1].points[1].uncoupled) == 1


@pytest.mark.parametrize(
    ("printed", "at", "has_cure"),
    [
        (b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n", 1, True),
        (b"ZeroDivisionError: division by zero\n", 1, False),
        (b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n", 4, False),
    ],
    ids=["one rank has no room for the model", "another failure", "not even several ranks have"],
)
def test_a_model_that_one_rank_cannot_hold_needs_another_baseline(
    printed: bytes, at: int, has_cure: bool
) -> None:
    launcher = Scripted()

    def fail(job: Job, listener: Meter) -> int:
        listener.output(0, "stderr", printed)
        return 1

    launcher.at[at] = fail
    *_, error = measure(launcher)
    assert ("--baseline 1x2 --no-uncoupled" in str(error)) is has_cure


@pytest.mark.parametrize("error", [LaunchError("no host answers"), KeyboardInterrupt()])
def test_what_was_measured_is_kept_whatever_ends_it(error: BaseException) -> None:
    launcher = Scripted()

    def broken(job: Job, listener: Meter) -> int:
        raise error

    launcher.at[2] = broken
    _, kept, _, raised = measure(launcher)
    assert raised is error
    assert len(kept[-1].points[0].samples) == 1
    assert kept[-1].failure.startswith("1x2 coupled, repetition 1: ")


def silent(job: Job, listener: Meter) -> int:
    listener.output(0, "stdout", b"epoch 1, loss 0.3\n")
    return 0


def half(job: Job, listener: Meter) -> int:
    for n in range(30):
        listener.report(0, {"kind": "progress", "samples": 10.0 * n, "steps": n, "seconds": float(n)})
    return 0


def short(job: Job, listener: Meter) -> int:
    for rank in range(2):
        listener.report(rank, {"kind": "progress", "samples": 10, "steps": 1, "seconds": 1.0})
    return 0


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (silent, ["no rate can be read", "ringleader.progress(samples=", "images/sec:", "img/sec on"]),
        (half, ["never called ringleader.progress: 1", "every rank"]),
        (short, ["did not train together long enough"]),
    ],
)
def test_a_script_without_a_rate_is_told_how(script: Callable[[Job, Meter], int], words: list[str]) -> None:
    launcher = Scripted()
    launcher.at[2] = script
    _, kept, _, error = measure(launcher)
    assert isinstance(error, RequestError)
    for word in words:
        assert word in str(error)
    assert len(kept[-1].points[0].samples) == 1


def test_printed_lines_do_where_nothing_is_reported() -> None:
    launcher = Scripted()

    def printed(job: Job, listener: Meter) -> int:
        for rank in range(job.np or 1):
            listener.output(rank, "stdout", b"10\timages/sec: 50.0 +/- 0.4 (jitter = 1.2)\t7.9\n")
        return 0

    launcher.at = dict.fromkeys(range(1, 11), printed)
    run = measured(launcher)
    assert run.unit == "images"
    assert [result.rate.median for result in scalings(run)] == [50, 100, 200]


def test_reports_that_cannot_be_read_are_told_once() -> None:
    said: list[str] = []
    meter = Meter(ranks=1, warmup=0.2, now=Clock(), warn=said.append, say=lambda _: None)
    for value in ("many", None, float("nan"), True):
        meter.report(0, {"kind": "progress", "samples": value, "seconds": 1.0})
    meter.report(0, {"kind": "step", "steps": 1})
    meter.report(0, {"kind": "something else"})
    assert said == ["rank 0 sent a progress report that cannot be read: samples is 'many', not a number"]
    assert meter.sample() is None


def test_parameters_that_differ_are_told_and_kept(tmp_path: Path) -> None:
    launcher, told = Scripted(), "the parameters of SGD differ between ranks"

    def differing(job: Job, listener: Meter) -> int:
        listener.report(0, {"kind": "consistency", "step": 2, "text": told})
        return launcher.train(job, listener)

    launcher.at = {1: differing}
    run, *others = measure(launcher)
    assert run is not None and any(told in words for words in map(str, others))
    [kept] = [one for point in run.points for one in point.samples if one.differences]
    assert kept.differences == (told,)
    assert run_file.read(run_file.write(run, tmp_path)) == run


@pytest.mark.parametrize("count", [1, 2, 100, 101, 102, 5000])
def test_messages_are_thinned_evenly(count: int) -> None:
    track = Track(100)
    for n in range(count):
        track.add((float(n), {}))
    times = [time for time, _ in track.kept()]
    assert (times[0], times[-1]) == (0, count - 1)
    assert len(times) <= 101
    assert max((b - a for a, b in pairwise(times)), default=0) <= max(1, count / 25)
    assert Track().kept() == []


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (("rdma",), {"2x2 coupled": ("rdma",)}),
        (("rdma", "shm"), {"1x2 coupled": ("shm",), "2x2 coupled": ("rdma", "shm")}),
        (("gdr",), {"2x2 coupled": ("gdr",)}),
        ((), {}),
    ],
)
def test_a_wire_is_required_of_the_sizes_that_can_have_it(
    words: tuple[str, ...], needed: dict[str, tuple[str, ...]]
) -> None:
    request = asked(replace(ASKED.job, require=words))
    jobs = {str(one).partition(",")[0]: job_of(one, request) for one in runs(repeats=1)}
    assert {name: job.require for name, job in jobs.items() if job.require} == needed


def test_a_wire_that_no_size_can_have_is_a_mistake() -> None:
    request = asked(replace(ASKED.job, require=("rdma", "shm")), points=RUN.points[:2])
    (fault,) = faults_of(request)
    assert (fault.where, fault.what) == ("--require", "rdma says nothing of any of these sizes")


def proof(part: float, *warnings: str) -> TransportProof:
    shares = WireShares(exchanged=100, shares={Wire.TCP: part, Wire.ROCE: 1 - part})
    host = HostProof(host="h1", ranks=(0,), between=shares, warnings=warnings)
    return TransportProof(hosts=(host,), between={Wire.TCP: part})


def test_a_size_keeps_the_proof_that_has_a_warning_and_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    # Runs: 1x1, 1x2 coupled and uncoupled, 2x2 coupled and uncoupled; then backwards.
    proofs = {2: proof(0.1), 3: proof(0.2), 4: proof(0.3, "slow"), 7: proof(0.4), 9: proof(0.5)}
    run = measured(Scripted(proofs=proofs))
    assert [point.transport for point in run.points] == [None, proof(0.5), proof(0.3, "slow")]
    devices = [host.devices for host in run.context.hosts]
    assert devices[0] == fabric_hosts.facts("hgx_ndr") and not any(devices[1:])
    run_file.write(run, tmp_path / "r")
    assert run_file.read(tmp_path / "r") == run == run_file.read(tmp_path / "r" / "run.json")
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["run.json"]


def test_a_stored_proof_that_is_none_is_refused(tmp_path: Path) -> None:
    run = measured(Scripted(proofs={4: proof(0.5)}))
    document = run_file.to_document(run)
    document["points"][2]["transport"]["hosts"][0]["between"]["exchanged"] = "much"
    with pytest.raises(RequestError, match=r"exchanged: .* is not an integer"):
        run_file.from_document(json.loads(json.dumps(document)), "r")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("python", "examples/mnist.py", "--x"), "mnist"),
        (("/usr/bin/my prog", "-v"), "my-prog"),
        ((), "run"),
        (("...",), "run"),
    ],
)
def test_script_name(command: tuple[str, ...], name: str) -> None:
    assert script_name(command) == name


def test_every_size_gets_the_same_threads() -> None:
    job = Job(command=("a",))
    assert threads_for(job, GRID, [8, 16], {}) == 4
    assert threads_for(job, GRID, [1], {}) == 1
    assert threads_for(job, GRID, [8], {"OMP_NUM_THREADS": "3"}) == 3
    assert threads_for(job, GRID, [8], {"OMP_NUM_THREADS": "4,2"}) is None
    ours = replace(job, env=(("OMP_NUM_THREADS", "2"),))
    assert threads_for(ours, GRID, [8], {"OMP_NUM_THREADS": "3"}) == 2
    assert threads_for(replace(job, threads=5), GRID, [8], {"OMP_NUM_THREADS": "3"}) == 5


def test_strong_scaling_gives_every_size_its_share_of_the_batch() -> None:
    job = replace(ASKED.job, command=("python", "train.py", "--batch={batch}", "{hosts}x{ranks}"))
    launcher = Scripted()
    run = measured(launcher, asked(job, strong=True, global_batch=64))
    assert (run.strong, run.global_batch) == (True, 64)
    words = {job.np: job.command[2:] for job in launcher.jobs}
    assert words == {1: ("--batch=64", "1x1"), 2: ("--batch=32", "1x2"), 4: ("--batch=16", "2x4")}
    assert run.context.command == job.command


def epochs(job: Job, listener: Meter) -> int:
    listener.output(0, "stdout", b"23/23 - 1s - 50ms/step - loss: 0.3\n")
    return 0


def test_batches_become_samples_where_a_batch_is_not_the_same_everywhere() -> None:
    launcher = Scripted(at=dict.fromkeys(range(1, 11), epochs))
    job = replace(ASKED.job, command=("python", "{batch}"))
    run = measured(launcher, asked(job, strong=True, global_batch=64))
    assert run.unit == "samples"
    assert [result.rate.median for result in scalings(run)] == [20 * 64, 2 * 20 * 32, 4 * 20 * 16]
    launcher = Scripted(at={1: epochs})
    *_, error = measure(launcher, asked(strong=True))
    assert isinstance(error, RequestError) and "add --global-batch" in str(error)
