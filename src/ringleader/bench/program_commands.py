"""Programs of others that measure between two hosts: which there are, and their commands. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.bench.fabric_programs import RdmaPort

VERBS = ("write", "read", "send")
PERFTEST = tuple(f"ib_{verb}_{kind}" for verb in VERBS for kind in ("bw", "lat"))
UCX = ("ucx_perftest", "ucx_perftest tag_lat", "ucx_perftest tag_bw")
OSU = ("osu_latency", "osu_bw", "osu_bibw")
PROGRAMS = (*PERFTEST, *UCX, *OSU)

LARGEST_OF_PERFTEST = 1 << 23
"""Bytes: ``-a`` measures 2 bytes to so many, each size twice the one before."""
PERFTEST_RUNS = 1000
LEAST_RUNS, MOST_RUNS = 10, 2000
RUN_BYTES = {"tag_lat": 16 * 1024 * 1024, "tag_bw": 64 * 1024 * 1024}
"""That ucx_perftest sends of one size, within those limits: half a second at 1 Gbit/s."""


@dataclass(frozen=True, kw_only=True)
class ProgramRun:
    """One start of a server and a client."""

    test: str
    """``ib_write_bw``, or a test of ucx_perftest: ``tag_bw``."""
    sizes: tuple[int, ...]
    """One, or all of a sweep."""
    backwards: bool = False
    """The second of the pair is the client."""
    both_ways: bool = False


@dataclass(frozen=True, kw_only=True)
class ProgramPlan:
    """What the ranks of one job do with perftest or ucx_perftest. Ranks count as in the job."""

    program: str
    path: str
    """Of its executable; a bare name is looked for on each host."""
    rounds: tuple[tuple[tuple[int, ...], ...], ...]
    """Pairs of ranks, round by round."""
    runs: tuple[ProgramRun, ...]
    """Of each pair."""
    addresses: tuple[tuple[str, ...], ...]
    """(rank, address of its host) of each rank that takes part."""
    run_seconds: float
    """What one run may take at most."""
    patience: float = 1.0
    """How many times longer than usual ranks and servers may take to start: see ``Job.patience``."""

    @property
    def round_seconds(self) -> float:
        """What a round may take at most."""
        return len(self.runs) * self.run_seconds

    @property
    def most_seconds(self) -> float:
        """What everything may take at most, starts aside."""
        return len(self.rounds) * self.round_seconds + 30.0


def is_bandwidth(test: str) -> bool:
    """Tell whether a test measures a rate."""
    return test.endswith("bw")


def runs_of(program: str, sizes: tuple[int, ...], *, both_ways: bool) -> tuple[ProgramRun, ...]:
    """Return the runs for one pair: rates in each direction, latency once.

    perftest measures all sizes in one run, ucx_perftest one in each.
    """
    runs: list[ProgramRun] = []
    for test in tests_of(program):
        for part in [sizes] if program in PERFTEST else [(size,) for size in sizes]:
            runs.append(ProgramRun(test=test, sizes=part))
            if is_bandwidth(test):
                runs.append(ProgramRun(test=test, sizes=part, backwards=True))
                if both_ways and program in PERFTEST:
                    runs.append(ProgramRun(test=test, sizes=part, both_ways=True))
    return tuple(runs)


def tests_of(program: str) -> tuple[str, ...]:
    """Return what is measured with a program of perftest, or with ucx_perftest."""
    if program == "ucx_perftest":
        return ("tag_lat", "tag_bw")
    return (program.rpartition(" ")[2],)


def command(
    path: str, run: ProgramRun, port: int, device: RdmaPort | None, address: str = ""
) -> tuple[str, ...]:
    """Return the command of the server, or with an ``address`` of the client."""
    to = (address,) if address else ()
    if run.test.startswith("tag_"):
        size = run.sizes[0]
        count = max(LEAST_RUNS, min(MOST_RUNS, RUN_BYTES[run.test] // max(1, size)))
        what = ("-t", run.test, "-s", str(size), "-n", str(count), "-w", str(count // 10)) if address else ()
        return (path, *to, "-p", str(port), *what)
    on = ("-d", device.device, "-i", str(device.port)) if device else ()
    gid = ("-x", str(device.gid_index)) if device and device.gid_index is not None else ()
    size_words = ("-s", str(run.sizes[0])) if len(run.sizes) == 1 else ("-a",)
    rate = ("--report_gbits",) if is_bandwidth(run.test) else ()
    both = ("-b",) if run.both_ways else ()
    return (
        *(path, *on, *gid, "-p", str(port), "-F", "-n", str(PERFTEST_RUNS)),
        *(*size_words, *rate, *both, *to),
    )


def osu_command(path: str, sizes: tuple[int, ...], window: int, *, cuda: bool = False) -> tuple[str, ...]:
    """Return the command of both ranks of an OSU program; its sizes go in powers of two."""
    limits = ("-m", f"{sizes[0]}:{sizes[-1]}")
    under_way = () if path.endswith("osu_latency") else ("-W", str(window))
    return (path, *limits, *under_way, *(("-d", "cuda", "D", "D") if cuda else ()))
