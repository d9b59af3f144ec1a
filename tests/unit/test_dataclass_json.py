"""Dataclasses as JSON and back: the same value again, or every wrong value with its place."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest

from ringleader import value_class
from ringleader.dataclass_json import bounded, decoded, document, from_document


class Wire(StrEnum):
    TCP = "tcp"
    ROCE = "roce"


@value_class.dataclass(frozen=True, kw_only=True)
class Sample:
    rate: float = bounded(above=0, wrong="{} is not a rate: it must be above 0")
    losses: tuple[float, ...] = bounded((), any_float=True)


@dataclass(frozen=True, kw_only=True)
class Measured:
    name: str
    samples: tuple[Sample, ...]
    ranks: int = bounded(1, least=1, wrong="{} ranks cannot be")
    size: str = bounded("1x1", pattern="[0-9]+x[0-9]+", wrong="{} is not a size")
    kind: str = bounded("coupled", choices=("coupled", "alone"))
    is_lab: bool | None = None
    shares: Mapping[Wire, float] | None = None
    p2p: Mapping[int, tuple[str, ...]] | None = None


GOOD = Measured(
    name="a",
    samples=(Sample(rate=1.5, losses=(2.0,)),),
    shares={Wire.ROCE: 1.0},
    p2p={0: ("OK", "NS")},
    is_lab=True,
)


def values(**changes: Any) -> Any:
    return json.loads(json.dumps(document(GOOD))) | changes


def test_a_value_comes_back_and_names_of_newer_versions_are_left_out() -> None:
    assert from_document(Measured, values(new=1)) == GOOD
    assert type(from_document(Sample, {"rate": 2}).rate) is float
    found = from_document(Sample, {"rate": 1, "losses": [float("nan")]})
    assert found.losses[0] != found.losses[0]


@pytest.mark.parametrize(
    ("found", "faults"),
    [
        ([], [("", "[] is not an object")]),
        ({}, [("name", "is missing"), ("samples", "is missing")]),
        (values(name=3, samples={}), [("name", "3 is not text"), ("samples", "{} is not a list")]),
        (values(samples=[{"rate": "1"}]), [("samples[0].rate", "'1' is not a number")]),
        (
            values(samples=[{"rate": 1, "losses": [1, None]}]),
            [("samples[0].losses[1]", "None is not a number")],
        ),
        (values(samples=[{"rate": float("inf")}]), [("samples[0].rate", "inf is not a number")]),
        (values(samples=[{"rate": 10**400}]), [("samples[0].rate", f"1{'0' * 36}... is not a number")]),
        (values(ranks=True), [("ranks", "True is not an integer")]),
        (values(is_lab=1), [("is_lab", "1 is not true or false")]),
        (values(shares={"ib": 1}), [("shares.ib", "'ib' is not one of tcp, roce")]),
        (values(p2p={"x": []}), [("p2p.x", "'x' is not an integer")]),
        (values(name="\x1b[31m", p2p=1), [("p2p", "1 is not an object")]),
        (
            values(samples=[{"rate": -1}], ranks=0, size="x", kind="\x1b[0m"),
            [
                ("samples[0].rate", "-1.0 is not a rate: it must be above 0"),
                ("ranks", "0 ranks cannot be"),
                ("size", "'x' is not a size"),
                ("kind", "'\\x1b[0m' is not one of coupled, alone"),
            ],
        ),
    ],
)
def test_all_that_is_wrong_has_its_place(found: Any, faults: list[tuple[str, str]]) -> None:
    assert decoded(Measured, found)[1] == faults
    with pytest.raises(ValueError) as raised:
        from_document(Measured, found, "r" if faults[0][0] else "")
    assert faults[0][1] in str(raised.value)


def test_what_is_only_beyond_its_bounds_is_in_the_value() -> None:
    found, faults = decoded(Measured, values(ranks=0))
    assert found is not None and found.ranks == 0 and len(faults) == 1
    assert decoded(Measured, values(ranks="0"))[0] is None


def test_an_integer_beyond_any_float_is_wrong_where_infinity_is_not() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Losses:
        losses: tuple[float, ...] = bounded((), any_float=True)

    assert decoded(Losses, {"losses": [float("inf"), 7]})[1] == []
    ((place, what),) = decoded(Losses, {"losses": [10**400]})[1]
    assert place == "losses[0]" and what.endswith("is not a number")
