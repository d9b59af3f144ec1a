"""nccl-tests' output: written as it writes it, read in all of its versions, the same after a round trip."""

import json
from dataclasses import replace

import pytest

from ringleader.bench.nccl_tests.json_document import as_document
from ringleader.bench.nccl_tests.json_parser import parse_json
from ringleader.bench.nccl_tests.parsed_output import operation_named, runs_of
from ringleader.bench.nccl_tests.text_parser import parse_text
from ringleader.bench.nccl_tests.text_table import as_text, comparison, fitted, row
from ringleader.cli.bench.collectives import read_runs
from ringleader.errors import RequestError
from ringleader.measurements.collective import (
    CollectiveResult,
    CollectiveRun,
    CollectiveSeries,
    RankProcess,
    Sweep,
    Timing,
    bus_factor,
)
from ringleader.scaling import Context

RUN = CollectiveRun(
    name="a",
    context=Context(command=("ringleader", "bench", "allreduce"), date="2030-01-01T00:00:00+00:00"),
    operation="allreduce",
    ranks=8,
    per_host=4,
    dtype="float32",
    redop="sum",
    sweep=Sweep(minimum=8, maximum=1 << 27, step_factor=2, warmup=5, iterations=20, checks=1),
    processes=tuple(RankProcess(rank=rank, host=f"n{rank // 4}", pid=100 + rank) for rank in range(8)),
    series=(
        CollectiveSeries(
            implementation="ringleader",
            results=(
                CollectiveResult(
                    size=1 << 20,
                    count=1 << 18,
                    out_of_place=Timing(seconds=164.3e-6, low=160e-6, high=170e-6, wrong=0),
                    in_place=Timing(seconds=187.7e-6, wrong=0),
                    iterations=20,
                ),
                CollectiveResult(
                    size=1 << 27,
                    count=1 << 25,
                    out_of_place=Timing(seconds=1916.4e-6, wrong=3),
                    in_place=None,
                    iterations=5,
                ),
            ),
        ),
        CollectiveSeries(
            implementation="mpi",
            results=(CollectiveResult(size=1 << 20, count=1 << 18, in_place=Timing(seconds=375.4e-6)),),
        ),
        CollectiveSeries(implementation="nccl", results=(), note="rank 0 sees no GPU"),
    ),
)

MODERN = """
# nccl-tests version 2.17.6 nccl-headers=22706 nccl-library=22706
# Collective test starting: alltoall_perf
# nThread 1 nGpus 1 minBytes 1024 maxBytes 2048 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 \
validation: 1 graph: 0 unalign: 0
#
# Using devices
#  Rank  0 Group  0 Pid   2948 on     host-a device  0 [0000:06:00] NVIDIA H200
#  Rank  1 Group  0 Pid   2949 on     host-b device  0 [0000:06:00] NVIDIA H200
NCCL version 2.30.3+cuda13.0
#
#                                                              out-of-place         in-place
#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong
#   (B)    (elements)              (us)  (GB/s)  (GB/s)         (us)  (GB/s)  (GB/s)
[host-a:02943] 15 more processes have sent help message help-mca-var.txt
  1024           128   float    none      -1    55.66    0.02    0.01       0    29.21    0.04    0.02    N/A
  67108864   8388608   float    none      -1   100000    0.67    0.34       2  69049.0    0.97    0.49    N/A
# Out of bounds values : 1 FAILED
# Avg bus bandwidth    : 9.04853
#
# Collective test concluded: alltoall_perf
"""

OLD = """
# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid   1320 on     dgx device  0 [0x06] Tesla V100-SXM2-16GB
#   Rank  1 Pid   1320 on     dgx device  1 [0x07] Tesla V100-SXM2-16GB
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2   float     sum    24.64    0.00    0.00  1e-07    24.34    0.00    0.00  0e+00
   134217728      33554432   float     sum   1000.0  134.22  134.22  5e-07   2000.0   67.11   67.11    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 50.3
"""


def only(text: str, operation: str = "allreduce", **options: object) -> CollectiveRun:
    (test,) = parse_text(text, "out.txt")
    runs, faults = runs_of(test, operation=operation, name="x", source="out.txt", **{"ranks": None} | options)
    assert not faults, faults
    (run,) = runs
    return run


def test_a_row_has_the_widths_and_the_rounding_of_nccl_tests() -> None:
    # nccl-tests 2.17 printed this very line for these numbers.
    printed = (
        "     1048576        262144     float     sum      -1   164.30    6.38   11.17       0"
        "   187.70    5.59    9.78       0"
    )
    assert row(RUN, RUN.series[0].results[0]) == printed
    assert [fitted(value, 7) for value in (24.638, 44747.1, 100641.4, 2.5e8)] == [
        "  24.64",
        "44747.1",
        " 100641",
        "2.5e+08",
    ]
    assert fitted(1234.5, 6) == "1234.5" and fitted(12345.6, 6) == " 12346"


def test_bandwidths_follow_the_published_formulas() -> None:
    """doc/PERFORMANCE.md of nccl-tests: algbw = S/t, busbw = algbw · f."""
    published = dict.fromkeys(("reducescatter", "allgather", "alltoall"), 7 / 8)
    published |= {"allreduce": 2 * 7 / 8, "broadcast": 1.0, "sendrecv": 1.0}
    for operation, factor in published.items():
        document = as_document(replace(RUN, operation=operation))
        measured = document["results"][0]["out_of_place"]
        assert measured["alg_bw"] == pytest.approx((1 << 20) / 164.3e-6 / 1e9)
        assert measured["bus_bw"] == pytest.approx(measured["alg_bw"] * factor)
        assert bus_factor(operation, 8) == factor
    assert document["version"] == 3 and document["results"][0]["root"] == "    -1"
    assert document["results"][0]["type"] == "float" and document["results"][1]["in_place"] is None
    assert document["out_of_bounds"] == {"count": 1, "okay": "false"}
    rows = [line.split() for line in comparison(RUN).splitlines()]
    assert rows[1] == ["#", "size", "mpi", "in-place"] and rows[2] == ["#", "1048576", "2.00"]
    assert "# Fewer iterations for 134217728 B: 5\n" in as_text(RUN)


def test_text_and_json_read_back_are_the_same_run() -> None:
    for tests in (parse_text(as_text(RUN), "t"), parse_json(json.dumps(as_document(RUN)), "j")):
        (test,) = tests
        (read,), faults = runs_of(test, operation="allreduce", ranks=None, name="a", source="t")
        assert not faults and (read.ranks, read.per_host, read.dtype, read.memory) == (
            8,
            4,
            "float32",
            "host",
        )
        assert [series.implementation for series in read.series] == ["ringleader", "mpi", "nccl"]
        assert read.series[2].note == "rank 0 sees no GPU" and read.sweep == RUN.sweep
        assert read.processes == RUN.processes and read.wrong == 3 and not read.failure
        for mine, theirs in zip(RUN.series[0].results, read.series[0].results, strict=True):
            assert (mine.size, mine.count) == (theirs.size, theirs.count)
            assert theirs.out_of_place.seconds == pytest.approx(mine.out_of_place.seconds, rel=1e-4)


def test_a_modern_output() -> None:
    run = only(MODERN, "alltoall")
    assert (run.ranks, run.per_host, run.memory, run.redop, run.wrong) == (2, 1, "cuda", "none", 2)
    first, second = run.series[0].results
    assert first.in_place and first.in_place.wrong is None and first.out_of_place
    assert (first.count, first.out_of_place.wrong, first.out_of_place.seconds) == (128, 0, 55.66e-6)
    assert second.out_of_place and second.out_of_place.seconds == 0.1
    assert run.processes[1] == RankProcess(rank=1, host="host-b", pid=2949, device="NVIDIA H200")


def test_an_output_of_an_old_version() -> None:
    old = only(OLD)
    assert old.series[0].results[1].out_of_place == Timing(seconds=1e-3)  # an error is no count
    assert old.per_host == 2 and old.sweep and old.sweep.warmup == 5
    assert operation_named("/opt/nccl-tests/build/reduce_scatter_perf_mpi") == "reducescatter"
    assert operation_named("gather_perf") == ""


def test_prefixes_of_mpirun_and_lost_hashes() -> None:
    prefixed = "".join(f"  [1,0]<stdout>: {line}\n" for line in MODERN.splitlines())
    assert only(prefixed, "alltoall") == only(MODERN, "alltoall")
    plain = only(MODERN.replace("#wrong", "!wrong").replace("#", "").replace("!wrong", "#wrong"), "alltoall")
    assert plain.series == only(MODERN, "alltoall").series


def test_what_is_not_as_said_is_refused() -> None:
    for text, operation, ranks, what in (
        (MODERN, "allreduce", None, "is the output of alltoall"),
        (OLD.replace("134.22  134.22", "134.22   67.11"), "allreduce", None, "alltoall"),
        (
            "\n".join(line for line in OLD.splitlines() if "Rank  1" not in line),
            "allreduce",
            None,
            "one rank",
        ),
        (OLD.replace("Rank  1", "Rank  0"), "allreduce", None, "did not know of each other"),
    ):
        (test,) = parse_text(text, "out.txt")
        runs, faults = runs_of(test, operation=operation, ranks=ranks, name="x", source="out.txt")
        assert not runs and what in f"{faults[0].what} {faults[0].hint}"


def test_the_number_of_ranks_follows_from_busbw_where_nobody_says_it() -> None:
    text = "\n".join(line for line in OLD.splitlines() if "Rank" not in line)
    text = text.replace("134.22  134.22", "100.00  175.00")
    assert only(text).ranks == 8
    assert only(text, ranks=8).ranks == 8


def test_what_cannot_be_read_is_told_with_its_line() -> None:
    for text, where in (
        ("nothing\n", "out.txt"),
        (MODERN.replace("29.21    0.04", "29.21"), "out.txt:15"),
        (
            "# size count redop root " + 2 * "time algbw busbw #wrong " + "\n8 2 sum -1 1 1 1 0 1 1 1 0",
            "out.txt:2",
        ),
    ):
        with pytest.raises(RequestError) as raised:
            parse_text(text, "out.txt")
        assert raised.value.faults[0].where == where


def test_json_that_cannot_be_read_is_told_with_its_place() -> None:
    for document, where in (
        ("{", "j:1:2"),
        ("{}", "j: results"),
        ('{"results": [{"size": "x", "count": 1}]}', "j: results[0].size"),
        ('{"results": [{"size": 1, "count": 1, "in_place": {"time": -1}}]}', "j: results[0].in_place.time"),
        ("[]", "j"),
    ):
        with pytest.raises(RequestError) as raised:
            parse_json(document, "j")
        assert raised.value.faults[0].where == where


def test_an_output_that_broke_off_says_so() -> None:
    cut = OLD[: OLD.index("# Out of")]
    assert only(cut).failure == "the output ends before its footer"
    failed = cut + "host: Test NCCL failure common.cu:958 'unhandled cuda error'\n"
    assert only(failed).failure.startswith("Test NCCL failure common.cu:958")


@pytest.mark.parametrize("before", ["\ufeff", "\x1b[?2004h", "\x1b]0;gpu01\x07", "\ufeff\x1b[0m"])
@pytest.mark.parametrize("is_json", [False, True])
def test_a_mark_or_a_terminals_sequence_hides_no_first_line(before, is_json, tmp_path):
    text = json.dumps(as_document(RUN)) if is_json else MODERN.lstrip().partition("\n")[2]
    (tmp_path / "output").write_text(before + text)
    with pytest.raises(RequestError, match="is the output of"):
        read_runs(str(tmp_path / "output"), operation="broadcast", ranks=None, name="a")
