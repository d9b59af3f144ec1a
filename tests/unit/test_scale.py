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
from ringleader.scaling import IN_STEP, Context, Request, Run, scalings, too_wide

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


def test_ranks_in_step_are_measured_next_to_uncoupled_ones() -> None:
    """The order of all runs: `scale --dry-run` in tests/golden/report/printed.txt."""
    coupled, uncoupled = (job_of(one, ASKED) for one in runs()[3:5])
    assert replace(uncoupled, uncoupled=False) == coupled
    assert (coupled.np, coupled.hosts, job_of(runs()[1], ASKED).hosts) == (4, HOSTS, HOSTS[:1])
    assert all(one.kind != IN_STEP for one in runs(in_step="largest", points=RUN.points[:1]))
    launcher = Scripted()
    run = measured(launcher, asked(in_step="largest"))
    assert [len(point.in_step) for point in run.points] == [0, 0, 2]
    assert [(job.np, job.uncoupled) for job in launcher.jobs if job.in_step] == [(4, True)] * 2
    last = scalings(run)[-1]
    assert last.against_in_step is not None and last.against_in_step.median == pytest.approx(0.9)
    assert last.in_step_against_uncoupled.median == pytest.approx(1.0)
    # Ranks in step that fail end nothing.
    run, _, said, error = measure(Scripted(at={6: lambda job, _meter: 3}), asked(in_step="largest"))
    assert error is None and run is not None and not run.failure
    assert [(len(one.in_step), len(one.uncoupled)) for one in run.points] == [(0, 0), (0, 2), (0, 2)]
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
    one, two, four = [(len(point.samples), len(point.uncoupled)) for point in run.points]
    assert two == (2, 2), "narrow after the repetitions that were asked for"
    assert one == (four[0], 0) and four[0] == four[1] > 3 and too_wide(run) == {}
    assert said[-1].startswith(f"run {len(launcher.jobs)} of {len(launcher.jobs)}: ")
    assert "2 to " in repetitions(run) and "all 95% intervals are at most 10% wide" in repetitions(run)


def test_no_repetition_ends_after_the_budget_and_without_one_there_is_none() -> None:
    # A run takes 4 s: 10 runs are asked for, a repetition of 2x2 has 3 more.
    run = measured(launcher := varying(Scripted(), until=1000), asked(budget=62.0))
    assert launcher.clock.now <= 62.0 < launcher.clock.now + 3 * 4.0
    assert [len(point.samples) for point in run.points] == [3, 2, 3]
    said = "2 to 3; the budget of 62.0 s did not bring every 95% interval to 10%: 2x2 ("
    assert repetitions(run).startswith(said)
    run = measured(varying(Scripted(), until=1000))
    assert [len(point.samples) for point in run.points] == [2, 2, 2] and repetitions(run) == "2"
    assert repetitions(replace(run, budget=5.0, points=())) == "2", "interrupted before the first one"


def test_what_is_measured_is_what_the_ranks_did() -> None:
    run, kept, said, error = measure(Scripted())
    assert error is None and run is not None and run == kept[-1] and len(kept) == 10
    one, two, four = scalings(run)
    assert [found.rate.median for found in (one, four)] == pytest.approx([100, 360])
    assert two.efficiency is not None and two.efficiency.median == pytest.approx(0.9)
    assert four.against_uncoupled is not None and four.against_uncoupled.median == pytest.approx(0.9)
    assert four.uncoupled_efficiency is not None and four.uncoupled_efficiency.median == pytest.approx(1.0)
    step = four.step
    assert step is not None
    assert (step.total, step.exchange, step.waiting) == pytest.approx((0.1, 0.01, 0.002))
    assert run.points[2].samples[0].tail[-1] == "[3] step 40"
    assert "run 10 of 10: 1x1 coupled, repetition 2: 100.0/s\n" in said
    context = run.context
    assert [(host.name, host.cpu, host.cores) for host in context.hosts] == [
        ("h1", "Example CPU", 2),
        ("h2", "Example CPU", 2),
    ]
    assert (context.mpi, context.python, context.transport) == ("openmpi5 5.0.11", "3.11.7", "shared window")
    assert context.one_machine


@pytest.mark.parametrize("end", [7, LaunchError("no host answers"), KeyboardInterrupt()])
def test_whatever_ends_a_run_what_was_measured_is_kept(end: int | BaseException) -> None:
    def fail(job: Job, listener: Meter) -> int:
        if isinstance(end, BaseException):
            raise end
        listener.output(1, "stderr", b"ZeroDivisionError: division by zero\n")
        return end

    launcher = Scripted(at={4: fail})
    _, kept, _, error = measure(launcher)
    where = "2x2 coupled, repetition 1: "
    if end == 7:
        assert isinstance(error, RankError) and error.exit_code == 7
        assert str(error) == f"{where}it broke\n    [1] ZeroDivisionError: division by zero"
    else:
        assert error is end
    assert kept[-1].failure.startswith(where) and len(launcher.jobs) == 4
    assert [(len(one.samples), len(one.uncoupled)) for one in kept[-1].points] == [(1, 0), (1, 1), (0, 0)]


def reporting(ranks: int, steps: int) -> Callable[[Job, Meter], int]:
    """Ranks that print, and of which so many report this many steps."""

    def script(job: Job, listener: Meter) -> int:
        listener.output(0, "stdout", b"epoch 1, loss 0.3\n")
        for rank in range(ranks):
            for n in range(steps):
                progress = {"samples": 10.0 * n, "steps": n, "seconds": float(n)}
                listener.report(rank, {"kind": "progress", **progress})
        return 0

    return script


@pytest.mark.parametrize(
    ("ranks", "steps", "words"),
    [
        (0, 0, "no rate can be read|ringleader.progress(samples=|images/sec:|img/sec on"),
        (1, 30, "never called ringleader.progress: 1|every rank"),
        (2, 1, "did not train together long enough"),
    ],
)
def test_a_script_without_a_rate_is_told_how(ranks: int, steps: int, words: str) -> None:
    _, kept, _, error = measure(Scripted(at={2: reporting(ranks, steps)}))
    assert isinstance(error, RequestError) and all(word in str(error) for word in words.split("|"))
    assert len(kept[-1].points[0].samples) == 1


def printing(line: bytes, *, everywhere: bool = True) -> Callable[[Job, Meter], int]:
    def script(job: Job, listener: Meter) -> int:
        for rank in range((job.np or 1) if everywhere else 1):
            listener.output(rank, "stdout", line)
        return 0

    return script


def test_printed_lines_do_where_nothing_is_reported() -> None:
    script = printing(b"10\timages/sec: 50.0 +/- 0.4 (jitter = 1.2)\t7.9\n")
    run = measured(Scripted(at=dict.fromkeys(range(1, 11), script)))
    assert run.unit == "images"
    assert [result.rate.median for result in scalings(run)] == [50, 100, 200]


def test_reports_that_cannot_be_read_are_told_once() -> None:
    said: list[str] = []
    meter = Meter(ranks=1, warmup=0.2, now=Clock(), warn=said.append, say=lambda _: None)
    for value in ("many", None, float("nan"), True):
        meter.report(0, {"kind": "progress", "samples": value, "seconds": 1.0})
    for kind in ("step", "something else"):
        meter.report(0, {"kind": kind, "steps": 1})
    assert said == ["rank 0 sent a progress report that cannot be read: samples is 'many', not a number"]
    assert meter.sample() is None and Track().kept() == []


def test_parameters_that_differ_are_told_and_kept(tmp_path: Path) -> None:
    told = "the parameters of SGD differ between ranks"

    def differing(job: Job, listener: Meter) -> int:
        listener.report(0, {"kind": "consistency", "step": 2, "text": told})
        return launcher.train(job, listener)

    launcher = Scripted(at={1: differing})
    run, _, said, _ = measure(launcher)
    assert run is not None and told in str(said)
    assert [one.differences for point in run.points for one in point.samples if one.differences] == [(told,)]
    assert run_file.read(run_file.write(run, tmp_path)) == run


@pytest.mark.parametrize("count", [1, 100, 101, 5000])
def test_messages_are_thinned_evenly(count: int) -> None:
    track = Track(100)
    for n in range(count):
        track.add((float(n), {}))
    times = [time for time, _ in track.kept()]
    assert (times[0], times[-1]) == (0, count - 1) and len(times) <= 101
    assert max((b - a for a, b in pairwise(times)), default=0) <= max(1, count / 25)


def test_a_wire_is_required_of_the_sizes_that_can_have_it() -> None:
    for words, needed in (
        (("rdma", "shm"), {"1x2 coupled": ("shm",), "2x2 coupled": ("rdma", "shm")}),
        (("gdr",), {"2x2 coupled": ("gdr",)}),
    ):
        request = asked(replace(ASKED.job, require=words))
        jobs = {str(one).partition(",")[0]: job_of(one, request) for one in runs(repeats=1)}
        assert {name: job.require for name, job in jobs.items() if job.require} == needed
    (fault,) = faults_of(asked(replace(ASKED.job, require=("rdma", "shm")), points=RUN.points[:2]))
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
    assert devices == [fabric_hosts.facts("hgx_ndr"), None]
    run_file.write(run, tmp_path / "r")
    assert run_file.read(tmp_path / "r") == run == run_file.read(tmp_path / "r" / "run.json")
    document = json.loads((tmp_path / "r" / "run.json").read_text())
    document["points"][2]["transport"]["hosts"][0]["between"]["exchanged"] = "much"
    with pytest.raises(RequestError, match=r"exchanged: .* is not an integer"):
        run_file.from_document(document, "r")


def test_every_size_gets_the_same_threads_and_a_run_the_name_of_its_script() -> None:
    job = Job(command=("a",))
    ours = replace(job, env=(("OMP_NUM_THREADS", "2"),))
    for made, cores, value, threads in (
        (job, [8, 16], "", 4),
        (job, [1], "", 1),
        (job, [8], "3", 3),
        (job, [8], "4,2", None),
        (ours, [8], "3", 2),
        (replace(job, threads=5), [8], "3", 5),
    ):
        assert threads_for(made, GRID, cores, {"OMP_NUM_THREADS": value} if value else {}) == threads
    commands = (("python", "examples/mnist.py", "--x"), ("/usr/bin/my prog", "-v"), (), ("...",))
    assert [script_name(command) for command in commands] == ["mnist", "my-prog", "run", "run"]


def test_strong_scaling_gives_every_size_its_share_of_the_batch() -> None:
    job = replace(ASKED.job, command=("python", "train.py", "--batch={batch}", "{hosts}x{ranks}"))
    script = printing(b"23/23 - 1s - 50ms/step - loss: 0.3\n", everywhere=False)
    launcher = Scripted(at=dict.fromkeys(range(1, 11), script))
    run = measured(launcher, asked(job, strong=True, global_batch=64))
    assert (run.strong, run.global_batch, run.unit, run.context.command) == (True, 64, "samples", job.command)
    words = {job.np: job.command[2:] for job in launcher.jobs}
    assert words == {1: ("--batch=64", "1x1"), 2: ("--batch=32", "1x2"), 4: ("--batch=16", "2x4")}
    # Batches become samples.
    assert [result.rate.median for result in scalings(run)] == [20 * 64, 2 * 20 * 32, 4 * 20 * 16]
    *_, error = measure(Scripted(at={1: script}), asked(strong=True))
    assert isinstance(error, RequestError) and "add --global-batch" in str(error)
