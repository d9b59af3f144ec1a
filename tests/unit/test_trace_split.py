"""Where steps went: traces made by hand, whose split is known exactly. Times in them are milliseconds."""

import json
import re
import shlex
from typing import Any

import pytest
from tests import transcripts

from ringleader.cli.analyze import as_text
from ringleader.measurements.trace_events import clipped, common, merged, total, trace_of, without
from ringleader.measurements.trace_split import PARTS, Split, split

MAIN, GPU = (100, 100), (0, 7)


def event(category: str, name: str, begin: float, end: float, on: tuple[int, int] = MAIN, **args: Any) -> Any:
    return {
        "ph": "X", "cat": category, "name": name, "pid": on[0], "tid": on[1],
        "ts": 1000 * begin, "dur": 1000 * (end - begin), "args": args,
    }  # fmt: skip


def split_of(*documents: Any) -> Split:
    return split([trace_of(one, f"rank-{place}.json") for place, one in enumerate(documents)])


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
KINDS: dict[str, tuple[str, str, tuple[int, int]]] = {
    "step": ("user_annotation", "ProfilerStep#{}", MAIN),
    "gpustep": ("gpu_user_annotation", "ProfilerStep#{}", GPU),
    "compute": ("cpu_op", "aten::addmm", MAIN),
    "load": ("user_annotation", LOADER, MAIN),
    "other": ("user_annotation", "gloo:broadcast", (100, 105)),
    "wait": ("user_annotation", "ringleader:all_reduce", MAIN),
    "submitted": ("user_annotation", "nccl:all_reduce", MAIN),
    "marked": ("gpu_user_annotation", "nccl:all_reduce", GPU),
    "copy": ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", GPU),
    "set": ("gpu_memset", "Memset (Device)", GPU),
    "kernel": ("kernel", "gemm", GPU),
    "nccl": ("kernel", REDUCE, GPU),
}


def events_of(what: str, number: str, kind: str, at: str, begin: float, end: float) -> list[Any]:
    if what == "gloo":  # as PyTorch 2.13 records it: submitted by the script's thread, carried out by Gloo's
        name = kind or "all_reduce"
        called = event("cpu_op", f"c10d::{name}_", begin - 0.2, begin + 0.2)
        return [called, event("user_annotation", f"gloo:{name}", begin, end, (100, 104))]
    if what == "launch" or (what == "kernel" and number):
        about = {"correlation": int(number), "stream": int(kind or 7)}
        call = [event("cuda_runtime", "cudaLaunchKernel", float(at), float(at) + 1, **about)] if at else []
        return [*call, event("kernel", "gemm", begin, end, GPU, **about)]
    category, name, on = KINDS[what]
    group = {"Process Group Name": "0", "Process Group Description": "default_pg", "Seq": number}
    about = group | {"Seq": int(number), "stream": 20} if what == "nccl" else {}
    return [event(category, name.format(number), begin, end, on, **about)]


EVENT = re.compile(r"([a-z]+)(\d*)(?:/(\w+))?:(?:([\d.]+)>)?([\d.]+)-([\d.]+)")


def trace(text: str, rank: int = 0, world: int = 2) -> dict[str, Any]:
    """Of one rank: ``compute:2-4``, ``step7:0-100``, ``launch2:20>60-100`` from a CPU at 20, ``clock=7``."""
    found, more = [], {"rank": rank, "world": world, "clock": 0}
    for word in text.split():
        name, is_about, value = word.partition("=")
        if is_about:
            more[name] = json.loads(value)
        else:
            *about, begin, end = EVENT.fullmatch(word).groups("")  # type: ignore[union-attr]
            found += events_of(*about, float(begin), float(end))
    moved = [{**one, "ts": one["ts"] + 1000 * more["clock"]} for one in found]
    keys = {"base": "baseTimeNanoseconds", "host": "host_name", "last": "ringleader_last_step"}
    others = {key: more[name] for name, key in keys.items() if name in more}
    job = {"rank": more["rank"], "world_size": more["world"]}
    return {"traceEvents": moved, "distributedInfo": job, **others}


def on_cpus() -> tuple[Any, Any]:
    """Two steps of 100 ms: rank 1's data loader takes 40 ms longer, so rank 0 waits for it in each."""
    first, second = shlex.split(transcripts.cases("analyze/splits.txt")[0])
    return trace(first, 0), trace(second, 1)


def test_splits() -> None:
    def call(*ranks: str) -> tuple[int, str, str]:
        found = split_of(*(trace(text, rank) for rank, text in enumerate(ranks)))
        clocks = [rank.clock and round(rank.clock, 6) for rank in found.ranks]
        about = f"matched {found.matched}, on GPUs {found.on_gpu}, clocks {clocks}\n"
        return 0, f"{as_text(found)}\n{about}", ""

    transcripts.check("analyze/splits.txt", call)


def test_the_time_of_cpus_is_divided_without_remainder_and_the_straggler_is_named() -> None:
    found = split_of(*on_cpus())
    for rank in found.ranks:
        assert sum(getattr(rank, part) for part in PARTS) == pytest.approx(rank.seconds)
    assert found.straggler is found.ranks[1]
    assert (found.ranks[1].was_last, found.ranks[1].caused) == (2, pytest.approx(0.060))
    assert found.why(found.ranks[1]) == ("input", pytest.approx(0.080))


@pytest.mark.parametrize(
    "about", [{"correlation": [1], "stream": [7], "device": {}}, {}], ids=["odd", "none"]
)
def test_odd_arguments_of_an_event_match_no_other(about: dict[str, Any]) -> None:
    made = trace("step7:0-100 step8:100-200 launch1:10>10-30 launch1:12>150-170", world=1)
    made["traceEvents"] = [one | {"args": about if one["args"] else {}} for one in made["traceEvents"]]
    assert split_of(made).steps == (7, 8)


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


def test_ranks_by_names_are_noted() -> None:
    found = split([trace_of(trace("compute:0-1")["traceEvents"], name) for name in ("b.json", "a.json")])
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
