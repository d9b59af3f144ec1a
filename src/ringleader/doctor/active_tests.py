"""Measures between and on the hosts of a job: ``ringleader doctor --active``. ``active_verdicts`` judges it.

    results = measure(job, facts=facts, environ=os.environ, seconds=30.0, progress=line.show)
    checks = judge(results)                         # ringleader.doctor.active_verdicts

Pairs are measured by ``bench.pair_measurement``, as ``ringleader bench p2p`` does it: by MPI messages in
rounds, suspects a second time with hosts that are known to be good, then by perftest or ucx_perftest over
every RDMA port, from host memory and from that of GPUs. Ranks run ``bench.rank_speed``.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ringleader.bench import measurement_job
from ringleader.bench.measurement_job import Launcher, on_each_host, rank_program_job
from ringleader.bench.pair_answers import ProgramError, latencies_of, rates_of
from ringleader.bench.pair_measurement import Measured, PairRequest, measure
from ringleader.bench.pair_rounds import Pair, Round, first_rounds, neighbors, packed, second_rounds
from ringleader.bench.program_commands import runs_of
from ringleader.bench.rank_speed import RankSpeed, SpeedPlan
from ringleader.dataclass_json import from_document
from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.fabric.active.link_isolation import suspects_of
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.port_selection import UsablePort, select_ports
from ringleader.fabric.wires import Wire
from ringleader.launch.launch_job import launch as launch_job
from ringleader.measurements.point_to_point import PointToPointRun, Silence, Transfer
from ringleader.plan.job import Job
from ringleader.scaling import Context

FIRST_PART, SECOND_PART, SPEED_PART = 0.6, 0.25, 0.03
"""Parts of the time: the first pass, the second, each measurement of a rank's own speed."""
MOST_SPEED_SECONDS, MOST_PAIR_SECONDS = 1.0, 3.0
"""Above, numbers become no better."""
SIZES = (8, 64 * 1024, 1024 * 1024)
"""Bytes of messages: latency is that of the smallest; rates are the best of the others, as links allow."""
WINDOW = 16
PROGRAM_SIZE, LATENCY_SIZE = 1024 * 1024, 8
MOST_PROGRAM_PAIRS = 32
"""Pairs that programs of others measure: each host with its neighbor, of many hosts the first ones."""
PROGRAM_SECONDS = 20.0
"""That one run of such a program may take: perftest's takes 9 s at 1 Gbit/s, and its server's start a few."""
LEAST_PROGRAM_SECONDS = 10.0
"""With less left, none is started."""
VERBS = (Wire.INFINIBAND, Wire.ROCE, Wire.IWARP)
"""Wires that perftest's programs measure without options of a vendor."""


@dataclass(frozen=True, kw_only=True)
class ProgramPairs:
    """What perftest or ucx_perftest measured between neighbors, over ports of one rate."""

    run: PointToPointRun
    ports: tuple[tuple[str, ...], ...]
    """Of each host the RDMA ports that were measured: ``mlx5_0:1``; the n-th of all hosts with each other."""
    errors: tuple[ProgramError, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProgramNote:
    """Why no program of others measured anything, on some hosts."""

    reason: str
    hosts: tuple[str, ...] = ()
    memory: str = "host"
    """``cuda``: it only says why none measured GPU memory."""
    is_late: bool = False
    """Their ports are left, for which there was no time; others were measured."""


@dataclass(frozen=True, kw_only=True)
class ActiveResults:
    """Everything that the active tests measured. Places of the runs are the hosts, in their order."""

    hosts: tuple[str, ...]
    """As the user named them, in their order."""
    transfers: tuple[Transfer, ...] = ()
    """MPI messages between hosts, of all passes."""
    silences: tuple[Silence, ...] = ()
    programs: tuple[ProgramPairs, ...] = ()
    notes: tuple[ProgramNote, ...] = ()
    ranks: tuple[RankSpeed, ...] = ()
    passes: int = 1
    """2: suspects were measured again."""
    mpi: str = ""
    """``Open MPI 5.0.10``."""
    one_machine: bool = False
    """All hosts share one kernel (a lab, or ranks of one machine): they compete for its cores."""
    seconds: float = 0.0
    """What all measurements took."""
    failure: str = ""
    """How the job ended, where it did not end well; what was measured until then is in the other fields."""
    failed_host: str = ""
    """Whose rank failed first then; empty: not known."""

    def best_rates(self) -> dict[tuple[str, str], float]:
        """Return (source, target) → bits per second, the best of all passes: a bad link is slow in each."""
        return rates_of(self.hosts, [one for one in self.transfers if one.size > SIZES[0]])

    def lowest_latencies(self) -> dict[tuple[str, str], float]:
        """Return each pair once → seconds of half a round trip of the smallest message, the lowest of all."""
        return latencies_of(self.hosts, [one for one in self.transfers if one.size == SIZES[0]])


def measure_hosts(
    job: Job,
    *,
    facts: Mapping[str, HostFacts],
    environ: Mapping[str, str],
    seconds: float,
    program_seconds: float,
    progress: Callable[[str], None],
    ranks_per_host: int = 1,
    port: str = "",
    launch: Launcher = launch_job,
    now: Callable[[], float] = time.monotonic,
) -> ActiveResults:
    """Measure between the job's hosts, and how fast ranks compute on them.

    ``job``: its hosts, ssh and MPI count; its command and number of ranks do not. ``facts``: of the hosts,
    by name. ``seconds``: what messages and ranks may take together, starts of jobs aside. ``progress`` is
    given a line now and then. ``ranks_per_host``: how many ranks compute at once. ``port``: the only RDMA
    port to measure. ``program_seconds``: what perftest may take on all ports together. Raises what
    ``launch`` raises where nothing can be started, and StoppedError for a signal; a job that ends badly later
    is described in ``ActiveResults.failure``.
    """
    began = now()
    session = _Session(job, facts, environ, progress, launch, now)
    if port:
        session.check_port(port)
    session.pairs(first_rounds(len(session.hosts)), FIRST_PART * seconds, "measuring pairs")
    session.pairs(session.suspects(), SECOND_PART * seconds, "measuring suspects again")
    session.speeds(min(MOST_SPEED_SECONDS, SPEED_PART * seconds), ranks_per_host)
    session.programs(port, now() + program_seconds)
    return replace(session.results, seconds=now() - began)


class _Session:
    """The jobs of one measurement, and their results so far. After a failure pairs are not measured."""

    def __init__(
        self,
        job: Job,
        facts: Mapping[str, HostFacts],
        environ: Mapping[str, str],
        progress: Callable[[str], None],
        launch: Launcher,
        now: Callable[[], float],
    ) -> None:
        self._job, self._facts, self._environ, self._progress = job, facts, environ, progress
        self._launch, self._now = launch, now
        self._addresses: Mapping[str, str] = {}
        self.hosts = tuple(host.name for host in job.hosts) or ("localhost",)
        if len(self.hosts) == len(facts) == 1:  # it has another name where it is this machine
            self._facts = dict(zip(self.hosts, facts.values(), strict=True))
        self.results = ActiveResults(hosts=self.hosts, passes=0)

    def _add(self, **fields: Any) -> None:
        self.results = replace(self.results, **fields)

    def pairs(self, rounds: Sequence[Round], seconds: float, title: str) -> None:
        """Measure pairs of hosts by MPI messages."""
        if not rounds or self.results.failure:
            return
        seconds = min(seconds, MOST_PAIR_SECONDS * len(rounds))
        found = self._measure(rounds, title, sizes=SIZES, window=WINDOW, seconds=seconds)
        before, run = self.results, found.run
        self._addresses = found.addresses or self._addresses
        self._add(
            transfers=before.transfers + run.transfers,
            silences=before.silences + run.silences,
            passes=before.passes + 1,
            mpi=found.mpi or before.mpi,
            one_machine=before.one_machine or run.context.one_machine,
            failure=run.failure,
            failed_host=found.failed_host,
        )

    def suspects(self) -> tuple[Round, ...]:
        """Return who is to be measured again after the first pass."""
        number = {name: index for index, name in enumerate(self.hosts)}
        found = suspects_of(self.results.best_rates())
        return second_rounds(
            [(number[a], number[b]) for a, b in found.pairs],
            [number[name] for name in found.hosts],
            [number[name] for name in found.good],
        )

    def speeds(self, seconds: float, ranks: int) -> None:
        """Measure how fast this many ranks of each host compute, all at once.

        Also where pairs could not be measured: these ranks exchange nothing.
        """
        before = self.results.failure
        told: dict[int, RankSpeed] = {}

        def answered(rank: int, name: str, value: Any) -> None:
            try:
                if name == "speed":
                    host = self.hosts[rank // ranks]
                    told[rank] = from_document(RankSpeed, {**value, "rank": rank, "host": host})
            except (TypeError, ValueError, IndexError):
                return

        plan = SpeedPlan(seconds=seconds, ranks=ranks)
        program = "ringleader.bench.rank_speed"
        finished = measurement_job.run(
            rank_program_job(on_each_host(self._job, ranks), program, plan, seconds=plan.most_seconds),
            title="measuring ranks",
            environ=self._environ,
            progress=self._progress,
            answered=answered,
            heard=lambda: bool(told or before) or self._heard,
            launch=self._launch,
        )
        outcome = finished.outcome
        mpi = outcome.mpi.name if outcome is not None and outcome.mpi else ""
        ranks_told = tuple(told[rank] for rank in sorted(told))
        self._add(ranks=ranks_told, mpi=self.results.mpi or mpi)
        if not before:
            self._add(failure=finished.failure, failed_host=finished.failed_host)

    def check_port(self, name: str) -> None:
        """Raise RequestError where no host has such a port."""
        known = {port.name: None for host in self.hosts for port in self._ports(host)}
        if not any(name in (one, one.partition(":")[0]) for one in known):
            what = f"no host has an RDMA port {name} that can be used"
            hint = f"there are {', '.join(known)}" if known else "ringleader doctor says why"
            raise RequestError(Fault(where="--active-port", what=what, hint=hint))

    def programs(self, port: str, end: float) -> None:
        """Run perftest, or else ucx_perftest, over each port between neighbors, until ``end``."""
        if self.results.failure:
            return
        able = {host: self._programs_of(host) for host in self.hosts}
        lacking: dict[str, list[str]] = {}
        for host, programs in able.items():
            if not programs:
                why = "perftest and ucx_perftest are not installed"
                why = why if self._ports(host) else "no RDMA device with an active port"
                lacking.setdefault(why, []).append(host)
        self._add(notes=tuple(ProgramNote(reason=why, hosts=tuple(hosts)) for why, hosts in lacking.items()))
        chosen: dict[str, list[Pair]] = {}
        for pair in itertools.chain(*neighbors(len(self.hosts), most=MOST_PROGRAM_PAIRS)):
            first, second = (able[self.hosts[number]] for number in pair)
            if both := [program for program in first if program in second]:
                chosen.setdefault(both[0], []).append(pair)
        for program, pairs in chosen.items():
            rounds, hosts = packed(pairs), {self.hosts[number] for pair in pairs for number in pair}
            for rails in self._rails(hosts, port):
                self._program_pairs(rounds, program, rails, port, end)
                if program == "perftest" and all(self._facts[host].gpus for host in hosts):
                    self._program_pairs(rounds, program, rails, port, end, memory="cuda")

    def _programs_of(self, host: str) -> list[str]:
        """Return what a host can run, the better one first."""
        if not self._ports(host):
            return []
        names = {"perftest": "ib_write_bw", "ucx_perftest": "ucx_perftest"}
        return [name for name, path in names.items() if path in self._facts[host].software.programs]

    def _program_pairs(
        self,
        rounds: Sequence[Round],
        program: str,
        rails: Sequence[int],
        port: str,
        end: float,
        memory: str = "host",
    ) -> None:
        """Run one program over ports of one rate."""
        if self.results.failure:
            return
        left = end - self._now()
        named = [(port,) if port else self._names(host, rails) for host in self.hosts]
        measured = sorted({at for one in rounds for pair in one for at in pair})
        wanted = [(at, name) for at in measured for name in named[at]]
        if left < LEAST_PROGRAM_SECONDS:
            self._late(wanted, memory)
            return
        bandwidth, latency = {
            "perftest": ("ib_write_bw", "ib_send_lat"),
            "ucx_perftest": ("ucx_perftest tag_bw", "ucx_perftest tag_lat"),
        }[program]
        runs = [one for rail in rails for one in runs_of(bandwidth, (PROGRAM_SIZE,), rail=rail)]
        if memory == "host":
            runs += [one for rail in rails for one in runs_of(latency, (LATENCY_SIZE,), rail=rail)]
        try:
            found = self._measure(
                rounds,
                f"{program} in GPU memory" if memory == "cuda" else program,
                sizes=(LATENCY_SIZE, PROGRAM_SIZE),
                seconds=PROGRAM_SECONDS * self._job.patience,
                program=program,
                port=port,
                ports=()
                if port
                else tuple(tuple(one.name for one in self._ports(host)) for host in self.hosts),
                runs=tuple(runs),
                memory=memory,
                limit=left,
            )
        except RefusedError as error:  # it lacks an option, or finds no GPU
            notes = [ProgramNote(reason=one.what, hosts=tuple(one.where.split(", "))) for one in error.faults]
            self._add(notes=(*self.results.notes, *(replace(one, memory=memory) for one in notes)))
            return
        pair = ProgramPairs(run=_without_context(found.run), ports=tuple(named), errors=found.errors)
        self._add(programs=(*self.results.programs, pair))
        if found.run.failure and self._now() >= end:  # stopped: what was measured counts
            done = {(one.source, one.device) for one in found.run.transfers}
            self._late([one for one in wanted if one not in done], memory)
        else:
            self._add(failure=found.run.failure, failed_host=found.failed_host)

    def _late(self, ports: Sequence[tuple[int, str]], memory: str) -> None:
        """Note the ports (of hosts by number) for which no time was left."""
        if not ports:
            return
        names = ", ".join(f"{name} of {self.hosts[at]}" for at, name in ports)
        hosts = tuple(dict.fromkeys(self.hosts[at] for at, _ in ports))
        note = ProgramNote(
            reason=f"no time left to measure {names}", hosts=hosts, memory=memory, is_late=True
        )
        self._progress(note.reason)
        self._add(notes=(*self.results.notes, note))

    def _measure(self, rounds: Sequence[Round], title: str, **asked: Any) -> Measured:
        request = PairRequest(
            name="doctor",
            job=on_each_host(self._job, 1),
            ranks=tuple(range(len(self.hosts))),
            hosts=self.hosts,
            rounds=tuple(rounds),
            title=title,
            **asked,
        )
        return measure(
            request,
            environ=self._environ,
            context=Context(command=("ringleader", "doctor", "--active")),
            progress=self._progress,
            heard=self._heard,
            launch=self._launch,
            find_addresses=lambda *_: self._addresses,
        )

    @property
    def _heard(self) -> bool:
        found = self.results
        return bool(found.transfers or found.silences or found.ranks)

    def _ports(self, host: str) -> Sequence[UsablePort]:
        facts = self._facts.get(host)
        return [one for one in select_ports(facts).ports if one.wire in VERBS] if facts is not None else ()

    def _names(self, host: str, rails: Sequence[int]) -> tuple[str, ...]:
        ports = self._ports(host)
        return tuple(ports[rail].name for rail in rails if rail < len(ports))

    def _rails(self, hosts: Collection[str], port: str) -> list[list[int]]:
        """Return the numbers of ports that all these hosts have, in groups of one rate on the first host."""
        if port:
            return [[0]]
        count = min(len(self._ports(host)) for host in hosts)
        groups: dict[float, list[int]] = {}
        for number, one in enumerate(self._ports(min(hosts, key=self.hosts.index))[:count]):
            groups.setdefault(one.rate, []).append(number)
        return list(groups.values())


def _without_context(run: PointToPointRun) -> PointToPointRun:
    """Leave out what is known of the hosts: the doctor has their facts."""
    return replace(run, context=Context(command=run.context.command), transport=None)
