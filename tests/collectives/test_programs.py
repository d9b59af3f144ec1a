"""Random programs on living ranks against NumPy: hypothesis draws them, and shrinks those that fail.

One job of three ranks lives through all programs, as a training does; a new one is started after a failure.
A failing program is printed as JSON; `programs/random_programs.py FILE` under mpirun carries it out again.
"""

from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.collectives.served_ranks import ServedRanks

pytestmark = [pytest.mark.mpi, pytest.mark.torch, pytest.mark.timeout(900)]

SIZE = 3
PROGRAMS = 500
FEW_PROGRAMS = 8
EVERYBODY = list(range(SIZE))
SETS = [EVERYBODY, [0, 1], [0, 2], [1, 2], [1]]
KINDS = (
    "allreduce", "grouped_allreduce", "allgather", "grouped_allgather", "broadcast", "alltoall",
    "reducescatter", "grouped_reducescatter",
)  # fmt: skip
REDUCING = ("allreduce", "grouped_allreduce", "reducescatter", "grouped_reducescatter")
DTYPES = (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16",
    "float32", "float64",
)  # fmt: skip

orders = st.lists(st.permutations(range(SIZE)), min_size=SIZE, max_size=SIZE)
delays = st.lists(st.sampled_from([0, 0, 0, 1, 4]), min_size=SIZE, max_size=SIZE)
dims = st.lists(st.sampled_from([0, 1, 2, 3, 5]), max_size=3).map(tuple)
Drawn = dict[str, Any]


def _reduction(draw: Any, kind: str, dtype: str) -> Drawn:
    ops = ["Sum"] if "scatter" in kind else ["Sum", "Min", "Max", "Product"]
    if dtype != "bool":
        ops.append("Average")
    op = draw(st.sampled_from(ops))
    # Eight bits hold no more than the product of three small numbers.
    factors = [1.0, 0.5] if op == "Product" and dtype.endswith("int8") else [1.0, 1.0, 0.5, 2.0]
    scales = st.just(1.0) if dtype == "bool" else st.sampled_from(factors)
    return {"op": op, "prescale": draw(scales), "postscale": draw(scales)}


def _shapes(draw: Any, kind: str, members: int) -> Drawn:
    count = draw(st.integers(1, 3)) if kind.startswith("grouped_") else 1
    first = st.just(()) if "scatter" not in kind else st.integers(0, 7).map(lambda rows: (rows,))
    shape = st.one_of(dims, st.sampled_from([(9001,), (70_001,)])) if kind == "allreduce" else dims
    drawn: Drawn = {"shapes": [draw(first) + draw(shape) for _ in range(count)]}
    rows = st.lists(st.integers(0, 4), min_size=members, max_size=members)
    drawn["rows"] = [draw(rows) for _ in range(count)]
    drawn["say_splits"] = say = draw(st.booleans())
    block = draw(st.integers(0, 3))
    drawn["splits"] = [draw(rows) if say else [block] * members for _ in range(members)]
    drawn["extra"] = draw(st.integers(0, 2)) if say else 0
    return drawn


def _mistakes(drawn: Drawn) -> list[Drawn]:
    """Fields that one rank may have different, what few operations can have several times."""
    kind, size = drawn["kind"], len(drawn["members"])
    mistakes: list[Drawn] = [
        {"dtype": "float64" if drawn["dtype"] != "float64" else "float32"},
        {"shapes": [(*shape, 2) for shape in drawn["shapes"]]},
    ]
    if kind in REDUCING:
        mistakes += [{"op": "Sum" if drawn["op"] != "Sum" else "Average"}, {"prescale": 4.0}]
    if kind == "broadcast":
        mistakes += [{"root": (drawn["root"] + 1) % size}] * 4
    # A bool has no average.
    return [one for one in mistakes if drawn["dtype"] != "bool" or one.get("op") != "Average"]


@st.composite
def operations(draw: Any, number: int, alone: bool) -> Drawn:
    kind = draw(st.sampled_from(KINDS))
    dtype = draw(st.sampled_from(DTYPES))
    members = draw(st.sampled_from(SETS))
    named = not alone or members != EVERYBODY or draw(st.booleans())
    drawn: Drawn = {
        "kind": kind,
        "dtype": dtype,
        "members": members,
        "name": f"{draw(st.text(max_size=3))}{number}" if named else None,
        "root": draw(st.integers(0, len(members) - 1)),
        "seed": draw(st.integers(0, 99)),
        "strided": draw(st.booleans()),
        "inplace": kind in ("allreduce", "grouped_allreduce", "broadcast") and draw(st.booleans()),
        "op": "Sum",
        "prescale": 1.0,
        "postscale": 1.0,
        "wrong": None,
    }
    drawn |= _shapes(draw, kind, len(members))
    if kind in REDUCING:
        drawn |= _reduction(draw, kind, dtype)
    if len(members) > 1 and draw(st.integers(0, 5)) == 5:
        fields = draw(st.sampled_from(_mistakes(drawn)))
        drawn["wrong"] = {"rank": draw(st.sampled_from(members)), "fields": fields}
    return drawn


@st.composite
def operation_phases(draw: Any, number: int) -> Drawn:
    """Some operations; each rank asks for them, and waits for them, in its own order."""
    how = draw(st.sampled_from(["sync", "async", "async", "pending"]))
    count = draw(st.integers(1, 5)) if how != "sync" else 1
    alone = how == "sync"
    order = st.lists(st.permutations(range(count)), min_size=SIZE, max_size=SIZE)
    return {
        "kind": "operations",
        "how": how,
        "late": draw(delays),
        "begin": draw(order),
        "end": draw(order),
        "operations": [draw(operations(10 * number + index, alone)) for index in range(count)],
    }


@st.composite
def different(draw: Any, number: int) -> Drawn:
    """One rank calls another operation than the rest; all wait, and all must be told."""
    members = draw(st.sampled_from([one for one in SETS if len(one) > 1]))
    operation = draw(operations(10 * number, alone=False)) | {
        "kind": "allreduce",
        "dtype": "float32",
        "members": members,
        "shapes": [draw(dims)],
        "root": 0,
        "inplace": False,
        "op": "Sum",
        "wrong": {"rank": draw(st.sampled_from(members)), "fields": {"kind": "broadcast"}},
    }
    alike = {"begin": [[0]] * SIZE, "end": [[0]] * SIZE, "operations": [operation]}
    return {"kind": "operations", "how": "sync", "late": draw(delays), **alike}


def phases(number: int) -> st.SearchStrategy[Drawn]:
    def phase(kind: str, **fields: Any) -> st.SearchStrategy[Drawn]:
        return st.fixed_dictionaries({"kind": st.just(kind), "name": st.just(f"{kind}{number}"), **fields})

    rare = st.one_of(
        phase(
            "joining",
            counts=st.lists(st.integers(0, 3), min_size=SIZE, max_size=SIZE),
            op=st.sampled_from(["Sum", "Average"]),
            dtype=st.sampled_from(["int32", "float32", "float16"]),
            gather=st.booleans(),
        ),
        phase("twice", rank=st.integers(0, SIZE - 1)),
        phase("refused", what=st.sampled_from(["type", "root", "splits", "scatter"])),
        phase("barrier", members=st.sampled_from(SETS), late=delays),
        phase("sets", members=st.sampled_from(SETS[1:])),
        different(number),
    )
    return st.integers(0, 3).flatmap(lambda which: rare if which == 3 else operation_phases(number))


@st.composite
def programs(draw: Any) -> list[Drawn]:
    return [draw(phases(number)) for number in range(draw(st.integers(1, 4)))]


@pytest.mark.parametrize(
    "count", [FEW_PROGRAMS, pytest.param(PROGRAMS, marks=pytest.mark.long)], ids=["few", "many"]
)
def test_random_programs(jobs: Any, tmp_path: Path, count: int) -> None:
    """Every result is NumPy's, every planted mistake an error, nothing hangs, ranks have the same bits."""
    environ = jobs.environment(RINGLEADER_MISMATCH_PATIENCE="0.2", RINGLEADER_DEADLINE="25")
    ranks = ServedRanks(jobs.programs / "random_programs.py", size=SIZE, place=tmp_path, environ=environ)
    met: Counter[str] = Counter()

    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def carry_out(program: list[Drawn]) -> None:
        said = [answer["records"] for answer in ranks.carry_out(program)]
        met.update(["program", *_met(program)])
        # Where a result is everybody's, all who have it have the same bits.
        for one, other in combinations(said, 2):
            for mine, theirs in zip(one, other, strict=True):
                assert mine is None or theirs is None or mine == theirs, program

    try:
        carry_out()
        assert ranks.close().count("rank done") == SIZE
    finally:
        ranks.kill()
    assert met["program"] >= count
    if count == PROGRAMS:
        # All that a program can be made of came up, or this test has shown less than it says.
        wanted = {*KINDS, *DTYPES, "joining", "twice", "refused", "barrier", "sets"}
        wanted |= {"without a name", "strided", "wrong kind"}
        wanted |= {f"wrong {field}" for field in ("dtype", "shapes", "op", "prescale", "root")}
        assert sorted(wanted - set(met)) == []


def _met(program: list[Drawn]) -> list[str]:
    found = [phase["kind"] for phase in program]
    for phase in program:
        for one in phase.get("operations", ()):
            found += [one["kind"], one["dtype"]]
            found += ["without a name"] * (one["name"] is None) + ["strided"] * one["strided"]
            found += [f"wrong {field}" for field in (one["wrong"] or {"fields": ()})["fields"]]
    return found
