"""Programs of others that measure between two hosts: which there are, and their commands. Pure.

``fabric_programs`` starts them, ``program_output`` reads what they print.
"""

from __future__ import annotations

from ringleader.bench.pair_plan import ProgramRun
from ringleader.fabric.port_selection import UsablePort, roce_gids
from ringleader.fabric.wires import Wire

VERBS = ("write", "read", "send")
PERFTEST = tuple(f"ib_{verb}_{kind}" for verb in VERBS for kind in ("bw", "lat"))
UCX_TESTS = ("tag_lat", "tag_bw")
UCX = ("ucx_perftest", *(f"ucx_perftest {test}" for test in UCX_TESTS))
OSU = ("osu_latency", "osu_bw", "osu_bibw")
PROGRAMS = (*PERFTEST, *UCX, *OSU)

PERFTEST_RUNS = 1000
LEAST_RUNS, MOST_RUNS = 10, 2000
RUN_BYTES = {"tag_lat": 16 * 1024 * 1024, "tag_bw": 64 * 1024 * 1024}
"""That ucx_perftest sends of one size, within those limits: half a second at 1 Gbit/s."""


def is_bandwidth(test: str) -> bool:
    """Tell whether a test measures a rate."""
    return test.endswith("bw")


def runs_of(
    program: str, sizes: tuple[int, ...], *, both_ways: bool = False, rail: int = 0
) -> tuple[ProgramRun, ...]:
    """Return the runs for one pair: rates in each direction, latency once.

    perftest measures all sizes in one run, ucx_perftest one in each.
    """
    runs: list[ProgramRun] = []
    for test in UCX_TESTS if program == "ucx_perftest" else (program.rpartition(" ")[2],):
        for part in [sizes] if program in PERFTEST else [(size,) for size in sizes]:
            runs.append(ProgramRun(test=test, sizes=part, rail=rail))
            if is_bandwidth(test):
                runs.append(ProgramRun(test=test, sizes=part, rail=rail, backwards=True))
                if both_ways and program in PERFTEST:
                    runs.append(ProgramRun(test=test, sizes=part, rail=rail, both_ways=True))
    return tuple(runs)


def command(
    path: str, run: ProgramRun, tcp: int, port: UsablePort | None, address: str = "", gpu: int | None = None
) -> tuple[str, ...]:
    """Return the command of the server at a TCP port, or with an ``address`` of the client.

    ``port``: the RDMA port of this host; ``gpu``: the GPU in whose memory perftest's messages lie.
    """
    to = (address,) if address else ()
    if run.test in UCX_TESTS:
        size = run.sizes[0]
        count = max(LEAST_RUNS, min(MOST_RUNS, RUN_BYTES[run.test] // max(1, size)))
        what = ("-t", run.test, "-s", str(size), "-n", str(count), "-w", str(count // 10)) if address else ()
        return (path, *to, "-p", str(tcp), *what)
    on = ("-d", port.device.name, "-i", str(port.port.number)) if port else ()
    gids = roce_gids(port.port) if port and port.wire is Wire.ROCE else ()
    gid = ("-x", str(gids[0].index)) if gids else ()
    size_words = ("-s", str(run.sizes[0])) if len(run.sizes) == 1 else ("-a",)
    rate = ("--report_gbits",) if is_bandwidth(run.test) else ()
    both = ("-b",) if run.both_ways else ()
    cuda = () if gpu is None else (f"--use_cuda={gpu}",)
    return (
        *(path, *on, *gid, "-p", str(tcp), "-F", "-n", str(PERFTEST_RUNS)),
        *(*size_words, *rate, *both, *cuda, *to),
    )


def osu_command(path: str, sizes: tuple[int, ...], window: int, *, cuda: bool = False) -> tuple[str, ...]:
    """Return the command of both ranks of an OSU program; its sizes go in powers of two."""
    limits = ("-m", f"{sizes[0]}:{sizes[-1]}")
    under_way = () if path.endswith("osu_latency") else ("-W", str(window))
    return (path, *limits, *under_way, *(("-d", "cuda", "D", "D") if cuda else ()))
