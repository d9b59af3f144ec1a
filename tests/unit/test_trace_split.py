"""Where steps went: traces made by hand, whose split is known exactly. Times in them are milliseconds."""

from typing import Any

import pytest

from ringleader.measurements.trace_events import clipped, common, merged, total, trace_of, without
from ringleader.measurements.trace_split import PARTS, Split, split

MAIN, GPU = (100, 100), (0, 7)


def event(category: str, name: str, begin: float, end: float, on: tuple[int, int] = MAIN, **args: Any) -> Any:
    return {
        "ph": "X", "cat": category, "name": name, "pid": on[0], "tid": on[1],
        "ts": 1000 * begin, "dur": 1000 * (end - begin), "args": args,
    }  # fmt: skip


def step(number: int, begin: float, end: float) -> Any:
    return event("user_annotation", f"ProfilerStep#{number}", begin, end)


def compute(begin: float, end: float) -> Any:
    return event("cpu_op", "aten::addmm", begin, end)


def load(begin: float, end: float) -> Any:
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    return event("user_annotation", name, begin, end)


def gloo(begin: float, end: float, kind: str = "all_reduce") -> list[Any]:
    """As PyTorch 2.13 records it: submitted by the script's thread, carried out by one of Gloo's."""
    return [
        event("cpu_op", f"c10d::{kind}_", begin - 0.2, begin + 0.2),
        event("user_annotation", f"gloo:{kind}", begin, end, (100, 104)),
    ]


def nccl(
    sequence: int, begin: float, end: float, name: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
) -> Any:
    about = {"Process Group Name": "0", "Process Group Description": "default_pg", "Seq": sequence}
    return event("kernel", f"{name}(ncclDevComm*)", begin, end, GPU, stream=20, **about)


def document(rank: int, *events: Any, world: int = 2, clock: float = 0.0, **more: Any) -> dict[str, Any]:
    flat = [one for found in events for one in (found if isinstance(found, list) else [found])]
    moved = [{**one, "ts": one["ts"] + 1000 * clock} for one in flat]
    return {"traceEvents": moved, "distributedInfo": {"rank": rank, "world_size": world}, **more}


def split_of(*documents: Any) -> Split:
    return split([trace_of(one, f"rank-{place}.json") for place, one in enumerate(documents)])


def parts_of(found: Split, place: int) -> dict[str, float | None]:
    """Milliseconds of a rank's parts; those that are 0 are left out."""
    values = {part: getattr(found.ranks[place], part) for part in (*PARTS, "overlapped", "seconds")}
    values = {part: value if value is None else round(1000 * value, 6) for part, value in values.items()}
    return {part: value for part, value in values.items() if value != 0}


def on_cpus(*, clock: float = 0.0) -> tuple[Any, Any]:
    """Two steps of 100 ms: rank 1's data loader takes 40 ms longer, so rank 0 waits for it in each."""
    first = document(
        0,
        step(20, 0, 100), load(0, 10), compute(2, 4), compute(10, 50), gloo(40, 96),
        step(21, 100, 200), load(100, 110), compute(110, 150), gloo(140, 196),
    )  # fmt: skip
    second = document(
        1,
        step(20, 0, 100), load(0, 50), compute(50, 90), gloo(80, 96),
        step(21, 100, 200), load(100, 150), compute(150, 190), gloo(180, 196),
        clock=clock,
    )  # fmt: skip
    return first, second


CPU = {"compute": 80, "exposed": 32, "waiting": 60, "input": 20, "idle": 8, "overlapped": 20, "seconds": 200}
"""Of rank 0."""


def test_the_time_of_cpus_is_divided_without_remainder_and_the_straggler_is_named() -> None:
    found = split_of(*on_cpus())
    other = {name: part for name, part in CPU.items() if name != "waiting"} | {"exposed": 12, "input": 100}
    assert (parts_of(found, 0), parts_of(found, 1)) == (CPU, other)
    assert (found.steps, found.on_gpu, found.matched, found.notes) == ((20, 21), False, 2, ())
    for rank in found.ranks:
        assert sum(getattr(rank, part) for part in PARTS) == pytest.approx(rank.seconds)
    assert found.straggler is found.ranks[1]
    assert (found.ranks[1].was_last, found.ranks[1].caused) == (2, pytest.approx(0.060))
    assert found.why(found.ranks[1]) == ("input", pytest.approx(0.080))
    (kind,) = found.collectives
    assert (kind.kind, kind.count) == ("all_reduce", 4)
    values = (kind.seconds, kind.exposed, kind.waiting, kind.overlapped)
    assert values == pytest.approx((0.144, 0.044, 0.060, 0.040))


@pytest.mark.parametrize("clock", [-3_600_000.0, 7.0])
def test_clocks_of_hosts_are_corrected_by_the_ends_of_collectives(clock: float) -> None:
    found = split_of(*on_cpus(clock=clock))
    assert parts_of(found, 0) == pytest.approx(CPU, abs=1e-3)
    assert found.ranks[1].clock == pytest.approx(clock / 1000)
    assert len(found.notes) == 1 and "the clock of rank 1 is" in found.notes[0]
    # Newer versions write times from ``baseTimeNanoseconds`` on, which may differ between ranks.
    first, second = on_cpus()
    found = split_of({**first, "baseTimeNanoseconds": 2e9}, {**second, "baseTimeNanoseconds": 5e9})
    assert found.ranks[1].clock == pytest.approx(3.0)


def test_collectives_that_cannot_be_matched_leave_waiting_unknown_and_blame_nobody() -> None:
    first, second = on_cpus()
    second["traceEvents"] = [
        one for one in second["traceEvents"] if one["ts"] < 100_000 or one["name"] != "gloo:all_reduce"
    ]
    fewer = split_of(first, second)  # without numbers
    assert fewer.ranks[0].waiting is None and fewer.straggler is None
    assert parts_of(fewer, 0)["exposed"] == 92 and "unknown who waited" in fewer.notes[-1]

    def rank(number: int, *begins: int) -> Any:
        return document(number, step(1, 0, 1000), compute(0, 1), *(gloo(at, at + 20) for at in begins))

    apart = split_of(rank(0, *range(0, 900, 90)), rank(1, *range(0, 700, 70)))
    assert apart.ranks[0].waiting is None and apart.ranks[0].clock is None
    assert "clocks disagree" in apart.notes[0]
    # Gloo writes no group and no number: the second of each rank is of another subgroup.
    found = split_of(rank(0, 10, 300, 500, 600), rank(1, 10, 400, 500, 600))
    assert (found.matched, found.straggler, found.ranks[0].waiting) == (3, None, 0)
    assert "1 of 4 collectives end at different times" in found.notes[0]


def test_a_rank_that_was_held_up_itself_is_given_no_reason() -> None:
    """Rank 1 comes late as it waits in another group, of a rank without a trace."""
    other = event("user_annotation", "gloo:broadcast", 20.01, 80, (100, 105))
    first = document(0, step(1, 0, 100), compute(0, 20), gloo(20, 100))
    second = document(1, step(1, 0, 100), compute(0, 20.01), other, gloo(80, 100))
    found = split_of(first, second)
    assert found.straggler is found.ranks[1] and found.why(found.ranks[1])[1] == 0.0


def test_ranks_that_recorded_different_steps_are_cut_to_those_of_all() -> None:
    """Otherwise seconds of two steps are divided by one, and collectives of different steps matched."""
    first, second = on_cpus()
    third = [step(22, 200, 300), load(200, 210), compute(210, 250), gloo(240, 296)]
    second["traceEvents"] = [one for one in second["traceEvents"] if one["ts"] >= 100_000]
    second["traceEvents"] += document(1, *third)["traceEvents"]
    found = split_of(first, second)
    assert (found.steps, found.matched, found.straggler) == ((21,), 1, found.ranks[1])
    why = "the ranks recorded different steps: only steps that all ranks recorded are counted"
    assert found.notes == (why,)
    assert [parts_of(found, place)["seconds"] for place in (0, 1)] == [100, 100]
    assert parts_of(found, 0)["waiting"] == 30


@pytest.mark.parametrize("says", [True, False])
def test_steps_of_a_gpu_are_those_of_its_kernels(says: bool) -> None:
    """They end later than those of the CPU, and kernels before and behind them are of no step."""

    def on_gpu(category: str, name: str, one: int) -> Any:
        return event(category, name, 100 * one + 50, 100 * one + 140, GPU)

    def rank(number: int, *steps: int) -> Any:
        marks = [on_gpu("gpu_user_annotation", f"ProfilerStep#{one}", one) for one in steps if says]
        kernels = [on_gpu("kernel", "gemm", one) for one in (*steps, 9)]
        return document(number, [step(one, 100 * one, 100 * one + 10) for one in steps], kernels, marks)

    found = split_of(rank(0, 1, 2), rank(1, 2, 3))
    assert found.steps == ((2,) if says else ())
    assert [parts_of(found, place)["seconds"] for place in (0, 1)] == ([90, 90] if says else [890, 790])
    assert parts_of(split_of(rank(0, 1, 2)), 0)["seconds"] == (190 if says else 890)


@pytest.mark.parametrize("says", [True, False], ids=["marked steps", "none, as before PyTorch 2.1"])
def test_what_a_gpu_still_does_of_earlier_steps_does_not_count(says: bool) -> None:
    """As in HTA's public trace `negative_queue_length_values_check`: its GPU is 160 ms behind its CPU."""

    def kernel(number: int, begin: float, end: float, at: float | None = None, stream: int = 7) -> list[Any]:
        call = [] if at is None else [event("cuda_runtime", "cudaLaunchKernel", at, at + 1)]
        about = {"correlation": number, "stream": stream}
        return [one | {"args": about} for one in (*call, event("kernel", "gemm", begin, end, GPU))]

    ahead, behind = kernel(1, 12, 14, 10, stream=20), kernel(99, 5, 55)
    steps = [kernel(2, 60, 100, 20), kernel(3, 110, 140, 60), kernel(4, 150, 190, 120)]
    spans = [(7, 12, 140), (8, 150, 190)] if says else []
    marks = [event("gpu_user_annotation", f"ProfilerStep#{n}", a, b, GPU) for n, a, b in spans]
    found = split_of(document(0, step(7, 0, 100), step(8, 100, 130), ahead, behind, *steps, marks, world=1))
    assert found.steps == (7, 8)
    parts = parts_of(found, 0)
    assert (parts["seconds"], parts["compute"]) == (190 - 55, 40 + 30 + 40)


@pytest.mark.parametrize(
    "about", [{"correlation": [1], "stream": [7], "device": {}}, {}], ids=["odd", "none"]
)
def test_odd_arguments_of_an_event_match_no_other(about: dict[str, Any]) -> None:
    call = event("cuda_runtime", "cudaLaunchKernel", 10, 11) | {"args": about}
    kernels = [event("kernel", "gemm", begin, begin + 20, GPU) | {"args": about} for begin in (20, 150)]
    found = split_of(document(0, step(7, 0, 100), step(8, 100, 200), call, *kernels, world=1))
    assert found.steps == (7, 8)


def test_the_time_of_gpus_is_divided_by_kernels() -> None:
    """Copies and input count while no kernel runs; the time before the first kernel is left out."""

    def rank(number: int, late: float) -> Any:
        return document(
            number,
            step(7, 0, 100), load(0, 10), load(60, 90), compute(10, 60),
            event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 10, 14, GPU),
            event("gpu_memset", "Memset (Device)", 20, 22, GPU),
            event("kernel", "sm90_xmma_gemm_f32f32", 14, 40 + late, GPU),
            nccl(3, 30 + late, 70), event("kernel", "multi_tensor_apply_kernel", 95, 100, GPU),
            event("user_annotation", "nccl:all_reduce", 20, 21),
            event("gpu_user_annotation", "nccl:all_reduce", 30, 70, GPU),
        )  # fmt: skip

    found = split_of(rank(0, 0), rank(1, 20))
    parts = {"compute": 31, "exposed": 20, "waiting": 10, "copies": 4, "input": 20, "idle": 5}
    assert found.on_gpu and parts_of(found, 0) == parts | {"overlapped": 10, "seconds": 90}
    assert found.ranks[1].waiting == 0 and found.why(found.ranks[1])[0] == "compute"


def test_collectives_at_once_are_counted_once() -> None:
    """Gloo's begin when they are submitted: the first is exposed, then the rest of the next one."""
    found = split_of(document(0, step(1, 0, 50), compute(0, 10), gloo(10, 30), gloo(10, 45, "broadcast")))
    by_kind = {one.kind: round(1000 * one.exposed, 6) for one in found.collectives}
    assert (by_kind, parts_of(found, 0)["exposed"]) == ({"all_reduce": 20, "broadcast": 15}, 35)


def test_ranks_of_one_host_have_one_clock() -> None:
    """Gloo ends 7 ms later on rank 1 because the machine is busy: that is no difference of clocks."""
    first, second = on_cpus(clock=7.0)
    found = split_of({**first, "host_name": "h1"}, {**second, "host_name": "h1"})
    assert [rank.clock for rank in found.ranks] == [0.0, 0.0] and found.notes == ()
    assert parts_of(found, 0)["waiting"] == 74


def test_each_wait_of_our_own_optimizer_is_a_collective_and_several_kernels_may_be_one() -> None:
    waits = [event("user_annotation", "ringleader:all_reduce", at, at + 3) for at in (10, 20, 30)]
    found = split_of(document(0, step(1, 0, 40), compute(0, 10), waits))
    assert (found.collectives[0].count, parts_of(found, 0)["exposed"]) == (3, 9)
    kernels = [event("kernel", "gemm", 0, 10, GPU), *(nccl(at, at, at + 2) for at in (10, 20, 30))]
    (kind,) = split_of(document(0, step(1, 0, 40), kernels, waits)).collectives
    assert (kind.count, round(1000 * kind.seconds, 6)) == (3, 6)
    pieces = (nccl(1, 20, 25), nccl(1, 25, 30))
    assert split_of(*(document(rank, kernels[0], *pieces) for rank in (0, 1))).matched == 1


def one_collective(*events: Any) -> Any:
    (found,) = trace_of({"traceEvents": list(events)}, "x.json").collectives
    return found


def test_kinds_and_groups_of_collectives() -> None:
    group = {"Process Group Name": "1"}
    for name, about, kind in (
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", {}, "reduce_scatter"),
        ("ncclDevKernel_SendRecv(x)", {"Collective name": "all_to_allv"}, "all_to_all"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", {}, "send_recv"),
        ("ncclDevKernel_AllGather_RING_LL(x)", {"Collective name": "_allgather_base"}, "all_gather"),
        ("ncclDevKernel_Generic_1(x)", {}, "ncclDevKernel_Generic_1(x)"),
    ):
        assert one_collective(event("kernel", name, 0, 1, GPU, **group, **about)).kind == kind
    # What a kernel does not say comes from its operation.
    known = {"External id": 5, "Process Group Name": "2", "Seq": 4}
    kernel = event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 2, 3, GPU, **{"External id": 5})
    one = one_collective(event("cpu_op", "record_param_comms", 0, 1, **known), kernel)
    assert (one.group, one.sequence) == ("2", 4)


def test_traces_of_older_versions() -> None:
    """Until PyTorch 1.11: a plain list, capital categories, marks as operations, threads as text."""
    events = [
        {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": "stream 7", "ts": begin, "dur": length}
        for category, name, begin, length in (
            ("Operator", "ProfilerStep#3", 0, 9),
            ("Kernel", "gemm", 1, 4),
            ("Memcpy", "Memcpy DtoH", 5, 1),
            ("Kernel", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclColl)", 6, 4),
        )
    ]
    found = split([trace_of(events, "trace_rank3.json")])
    (rank,) = found.ranks
    assert (rank.rank, found.steps, found.matched, rank.waiting) == (3, (3,), 0, None)
    assert (rank.compute, rank.exposed, rank.copies) == pytest.approx((4e-6, 4e-6, 1e-6))


def test_a_step_that_has_not_ended_is_left_out() -> None:
    """What ``run --profile`` records of a script that ends earlier."""
    found = split_of(document(0, step(4, 0, 9), step(5, 9, 50), compute(0, 9), ringleader_last_step=4))
    assert (found.steps, parts_of(found, 0)["seconds"]) == ((4,), 9)


def test_missing_ranks_equal_ranks_and_ranks_by_names_are_noted() -> None:
    first, second = on_cpus()
    first["distributedInfo"]["world_size"] = second["distributedInfo"]["world_size"] = 12
    assert "10 of 12 ranks have no trace (2, 3, 4, 5, 6, 7, 8, 9, …)" in split_of(first, second).notes[0]
    found = split_of(*(document(0, compute(at, at + 1), world=1) for at in (0, 5000)))
    assert len(found.ranks) == 1 and "the latest" in found.notes[0]
    found = split([trace_of([compute(0, 1)], name) for name in ("b.json", "a.json")])
    assert [(rank.rank, rank.file) for rank in found.ranks] == [(0, "a.json"), (1, "b.json")]
    assert "numbered" in found.notes[0]


@pytest.mark.parametrize(
    ("events", "what"),
    [
        (None, "no traceEvents"),
        ([], "nothing was recorded"),
        ([None, 3, {"ph": "M"}], "nothing was recorded"),
        ([{"ph": "X", "ts": 1, "dur": 1, "name": "STEP"}], "none of its events is PyTorch's"),
        ([{"ph": "X", "cat": "cpu_op", "ts": "soon", "dur": 1}], "'soon' in place of a time"),
        ([{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": float("nan")}], "in place of a time"),
        ([{"ph": "X", "cat": "cpu_op", "ts": 10**400, "dur": 1}], "in place of a time"),
    ],
)
def test_what_is_no_trace(events: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        trace_of("text" if events is None else {"traceEvents": events}, "x.json")


def test_intervals() -> None:
    some = merged([(5, 9), (0, 3), (3, 4), (6, 7)])
    assert some == ((0, 4), (5, 9))
    assert common(some, ((2, 6),)) == ((2, 4), (5, 6))
    assert without(some, ((1, 2), (8, 20))) == ((0, 1), (2, 4), (5, 8))
    assert without((), some) == () and without(some, ()) == some
    assert clipped(some, 3, 6) == ((3, 4), (5, 6)) and clipped(some, 6, 3) == ()
    assert total(some) == 8
