"""One rank's trace of PyTorch's profiler (Kineto) as intervals: what ran when. Pure; seconds.

`trace_split` says from the traces of all ranks where a step went. The JSON is that of Kineto
(``libkineto/src/output_json.cpp``) since PyTorch 1.8; what a collective is comes from the arguments that
PyTorch adds (``saveNcclMeta`` in ``torch/csrc/profiler/util.cpp``) to ``record_param_comms`` and to kernels.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Intervals = tuple[tuple[float, float], ...]
"""Begin and end of each, in order, none touching another."""
OPERATIONS = frozenset(("cpu_op", "operator"))
KERNELS = frozenset(("kernel",))
COPIES = frozenset(("gpu_memcpy", "gpu_memset", "memcpy", "memset"))
"""Categories of events in lower case; until PyTorch 1.11 Kineto wrote ``Operator``, ``Memcpy``."""
LAUNCHES = frozenset(("cuda_runtime", "cuda_driver", "runtime"))
"""Those of calls by which the CPU has a GPU work."""
GROUP, NOTE = "Process Group Name", "record_param_comms"
"""Argument of kernels that says which collective they are of, and the operation that has it as well."""
KINDS = {
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "barrier": "barrier",
    "sendrecv": "send_recv",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send_recv",
    "recv": "send_recv",
}
"""What a name without signs contains → the collective. The first that fits counts."""
SYNCHRONIZING = frozenset(("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier"))
"""Collectives that no rank completes before all have come."""
OF_CPUS = re.compile(r"(gloo|mpi|ucc|ringleader):")
"""Names of collectives that CPUs carry out; those of NCCL are kernels."""
OF_GPUS = re.compile(r"ncclDevKernel|ncclKernel|nccl[A-Z]\w*Kernel|ncclGeneric")
NO_WORK = re.compile(
    r"record_param_comms$|c10d::|_?c10d_functional|(nccl|gloo|mpi|ucc|ringleader):|ProfilerStep|"
    r"enumerate\(|Optimizer\.|DistributedDataParallel\."
)
"""Operations that start a collective, or wait for one; marks, which older versions wrote as operations."""
STEP = re.compile(r"ProfilerStep#?\s*(\d+)")
INPUT = "enumerate(DataLoader)#"
RANK = re.compile(r"rank[-_ .]?(\d+)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Collective:
    """A collective operation of one rank."""

    kind: str
    """``all_reduce``."""
    group: str
    """Name of its process group; empty: the trace does not say."""
    sequence: int | None
    """Its number in the group; ``None``: the trace does not say."""
    begin: float
    end: float
    label: str = ""
    """How the group is described; empty: it is the only one, or not."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What one rank did while it was recorded."""

    name: str
    """Of the file."""
    rank: int | None
    """``None``: neither trace nor name say."""
    world: int
    """Ranks of the job; 0: the trace does not say."""
    host: str
    """Name of its host; empty: the trace does not say."""
    on_gpu: bool
    """Work are kernels of a GPU, otherwise operations of the CPU."""
    steps: tuple[int, ...]
    """Numbers of the steps (``ProfilerStep#20``)."""
    spans: tuple[tuple[float, float], ...]
    """Begin and end of each of these; on a GPU of its kernels. Empty: the trace does not say."""
    begin: float
    end: float
    """Of what is divided: of steps; where a GPU's trace has none, of all kernels."""
    compute: Intervals
    copies: Intervals
    """Of a GPU's memory."""
    input: Intervals
    """The script waits for its data loader."""
    collectives: tuple[Collective, ...]


def merged(intervals: Iterable[tuple[float, float]]) -> Intervals:
    """Return the union."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif end > begin:
            found.append((begin, end))
    return tuple(found)


def common(some: Intervals, others: Intervals) -> Intervals:
    """Return what is in both."""
    found, first, second = [], 0, 0
    while first < len(some) and second < len(others):
        begin, end = max(some[first][0], others[second][0]), min(some[first][1], others[second][1])
        if begin < end:
            found.append((begin, end))
        if some[first][1] < others[second][1]:
            first += 1
        else:
            second += 1
    return tuple(found)


def without(some: Intervals, others: Intervals) -> Intervals:
    """Return what is in ``some`` alone."""
    edges = [-math.inf, *(edge for one in others for edge in one), math.inf]
    return common(some, tuple(zip(edges[::2], edges[1::2], strict=True)))


def clipped(intervals: Intervals, begin: float, end: float) -> Intervals:
    """Return what is between two times; fast for few of many intervals."""
    if end <= begin:
        return ()
    first = bisect.bisect_right(intervals, begin, key=lambda one: one[1])
    last = bisect.bisect_left(intervals, end, key=lambda one: one[0])
    return tuple((max(begin, low), min(end, high)) for low, high in intervals[first:last])


def total(intervals: Intervals) -> float:
    """Return the length of all together."""
    return math.fsum(end - begin for begin, end in intervals)


def trace_of(document: Any, name: str) -> Trace:
    """Return the trace in a JSON document. Raises ValueError that says why it is not one."""
    held = document if isinstance(document, Mapping) else {"traceEvents": document}
    if not isinstance(held.get("traceEvents"), list):
        raise ValueError("is not a trace of PyTorch's profiler: it has no traceEvents")
    shift = _number(held.get("baseTimeNanoseconds")) / 1e9
    events = [_Event(one, shift) for one in held["traceEvents"] if _is_complete(one)]
    kernels = [one for one in events if one.category in KERNELS]
    copies = [one for one in events if one.category in COPIES]
    operations = [one for one in events if one.category in OPERATIONS]
    if not kernels and not operations:
        why = "nothing was recorded" if not events else "none of its events is PyTorch's"
        raise ValueError(f"has no operation and no kernel: {why}")
    last = held.get("ringleader_last_step")  # ours has the mark of one more, which did not end
    last = last if isinstance(last, int) else math.inf
    steps, of_gpu = (_steps(events, last, on_gpu=on_gpu) for on_gpu in (False, True))
    if kernels:  # which run later than the CPU's step where the script does not wait for them
        launched, since = _steps_of_launches(events, (*kernels, *copies), steps)
        of_gpu = {
            number: (max(begin, since) if since < end else begin, end)
            for number, (begin, end) in (of_gpu or launched).items()
        }
        own = {number: of_gpu[number] for number in steps} if of_gpu.keys() >= steps.keys() else {}
    else:
        own = steps
    spans = list(own.values()) or [one.span for one in ((*kernels, *copies) if kernels else events)]
    known = held.get("distributedInfo")
    known = known if isinstance(known, Mapping) else {}
    said = RANK.search(name.rpartition("/")[2])
    return Trace(
        name=name,
        rank=known["rank"] if isinstance(known.get("rank"), int) else int(said[1]) if said else None,
        world=known["world_size"] if isinstance(known.get("world_size"), int) else 0,
        host=str(held.get("host_name") or ""),
        on_gpu=bool(kernels),
        steps=tuple(sorted(steps)),
        spans=tuple(own[number] for number in sorted(steps)) if own else (),
        begin=min(begin for begin, _end in spans),
        end=max(end for _begin, end in spans),
        compute=merged(
            one.span
            for one in kernels or operations
            if not (OF_GPUS.match(one.name) if kernels else NO_WORK.match(one.name))
        ),
        copies=merged(one.span for one in copies),
        input=merged(one.span for one in events if one.is_mark and one.name.startswith(INPUT)),
        collectives=tuple(_collectives(events, kernels)),
    )


class _Event:
    """An event with a duration."""

    __slots__ = ("args", "category", "name", "span")

    def __init__(self, event: Mapping[str, Any], shift: float) -> None:
        begin = shift + _number(event["ts"]) / 1e6
        self.name = str(event.get("name", ""))
        self.category = str(event.get("cat", "")).lower()
        self.span = begin, begin + _number(event["dur"]) / 1e6
        args = event.get("args")
        self.args: Mapping[str, Any] = args if isinstance(args, Mapping) else {}

    @property
    def is_mark(self) -> bool:
        """Whether a program has given it its name, which older versions wrote as an operation."""
        return self.category in ("user_annotation", "cpu_op", "operator")


def _steps(events: Sequence[_Event], last: float, *, on_gpu: bool) -> dict[int, tuple[float, float]]:
    """Return begin and end of each step as threads of the CPU passed it, or as the GPU worked on it."""
    found: dict[int, tuple[float, float]] = {}
    for one in events:
        is_of = one.category == "gpu_user_annotation" if on_gpu else one.is_mark
        if is_of and (match := STEP.match(one.name)) and (number := int(match[1])) <= last:
            begin, end = found.get(number, one.span)
            found[number] = min(begin, one.span[0]), max(end, one.span[1])
    return found


def _steps_of_launches(
    events: Sequence[_Event], work: Sequence[_Event], steps: Mapping[int, tuple[float, float]]
) -> tuple[dict[int, tuple[float, float]], float]:
    """Return begin and end of what was launched in each step, and until when a GPU did what came before.

    A GPU that is behind its CPU still works on earlier steps when a recording begins: that is what runs on a
    stream before anything that was launched in these steps.
    """
    order = sorted((begin, end, number) for number, (begin, end) in steps.items())
    launched: dict[str, int] = {}
    for one in events:
        at = bisect.bisect_right(order, one.span[0], key=lambda step: step[0]) - 1
        is_in_step = at >= 0 and one.span[0] <= order[at][1]
        if one.category in LAUNCHES and is_in_step and one.args.get("correlation") is not None:
            launched[str(one.args["correlation"])] = order[at][2]
    found: dict[int, tuple[float, float]] = {}
    streams, earlier = set[str](), dict[str, float]()
    for one in sorted(work, key=lambda one: one.span):
        stream = f"{one.args.get('device')} {one.args.get('stream')}"
        if (number := launched.get(str(one.args.get("correlation")))) is not None:
            begin, end = found.get(number, one.span)
            found[number] = min(begin, one.span[0]), max(end, one.span[1])
            streams.add(stream)
        elif stream not in streams:
            earlier[stream] = one.span[1]
    return found, max((earlier[one] for one in streams if one in earlier), default=-math.inf)


def _is_complete(event: Any) -> bool:
    return isinstance(event, Mapping) and event.get("ph") == "X" and {"ts", "dur"} <= event.keys()


def _number(value: Any) -> float:
    """Return a number; ValueError where the trace has something else in its place."""
    try:
        found = float(value or 0)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"has {str(value)[:40]!r} in place of a time")
    return found


def _collectives(events: Sequence[_Event], kernels: Sequence[_Event]) -> Iterable[Collective]:
    """Yield what GPUs and CPUs exchanged, in order."""
    known = {str(one.args.get("External id")): one.args for one in events if one.name == NOTE}
    found = []
    for one in kernels:
        if OF_GPUS.match(one.name):
            about = one.args if GROUP in one.args else known.get(str(one.args.get("External id")), {})
            found.append(_collective(one, about))
    by_nccl = bool(found)
    for one in events:
        # Where our engine waits for NCCL, the kernels say it already.
        if one.is_mark and OF_CPUS.match(one.name) and not (by_nccl and one.name.startswith("ringleader:")):
            found.append(_collective(one, one.args))
    return sorted(found, key=lambda one: (one.begin, one.end))


def _collective(event: _Event, about: Mapping[str, Any]) -> Collective:
    sequence = about.get("Seq")
    return Collective(
        kind=_kind(str(about.get("Collective name") or "")) or _kind(event.name) or event.name[:40],
        group=str(about.get(GROUP) or ""),
        sequence=sequence if isinstance(sequence, int) and sequence >= 0 else None,
        begin=event.span[0],
        end=event.span[1],
        label=str(about.get("Process Group Description") or ""),
    )


def _kind(name: str) -> str:
    plain = re.sub(r"[^a-z]", "", name.lower())
    return next((kind for part, kind in KINDS.items() if part in plain), "")
