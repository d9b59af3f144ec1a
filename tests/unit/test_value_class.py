"""`value_class.dataclass` makes what the standard library's would make."""

import copy
import dataclasses
import json
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, dataclass, fields, replace
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ringleader import value_class
from ringleader.dataclass_json import bounded, decoded, document, from_document


@value_class.dataclass(frozen=True, kw_only=True)
class Ours:
    """A base with every kind of field."""

    name: str
    count: int = 1
    tags: tuple[str, ...] = value_class.field(default_factory=lambda: ("a",))
    noise: object = value_class.field(default=None, compare=False, repr=False)

    @property
    def double(self):
        """Twice the count."""
        return 2 * self.count


@value_class.dataclass(frozen=True, kw_only=True)
class OursBelow(Ours):
    """One that inherits, and gives a field another default."""

    count: int = 5
    more: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Theirs:
    """The same, made by the standard library."""

    name: str
    count: int = 1
    tags: tuple[str, ...] = dataclasses.field(default_factory=lambda: ("a",))
    noise: object = dataclasses.field(default=None, compare=False, repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TheirsBelow(Theirs):
    """The same, made by the standard library."""

    count: int = 5
    more: str = ""


PAIRS = [(Ours, Theirs), (OursBelow, TheirsBelow)]
GIVEN = some.fixed_dictionaries(
    {"name": some.text(max_size=2)},
    optional={
        "count": some.integers(0, 2),
        "tags": some.tuples(some.sampled_from("ab")),
        "noise": some.integers(0, 1),
    },
)


@given(GIVEN, GIVEN)
def test_values_are_equal_where_the_standard_librarys_are(one, two):
    for ours, theirs in PAIRS:
        assert (ours(**one) == ours(**two)) is (theirs(**one) == theirs(**two))
        if ours(**one) == ours(**two):
            assert hash(ours(**one)) == hash(ours(**two))
        assert asdict(ours(**one)) == asdict(theirs(**one))
        assert repr(ours(**one)).replace("Ours", "Theirs") == repr(theirs(**one))
        assert asdict(replace(ours(**one), count=9)) == asdict(replace(theirs(**one), count=9))


def test_arguments_that_lack_or_are_unknown_are_refused():
    for arguments in ({}, {"count": 1}, {"name": "a", "nme": "b"}):
        for kind in (Ours, Theirs):
            with pytest.raises(TypeError, match=r"name|nme"):
                kind(**arguments)


CHANGES = (
    lambda it: setattr(it, "name", "b"),
    lambda it: setattr(it, "unknown", 1),
    lambda it: delattr(it, "name"),
)


@pytest.mark.parametrize("change", CHANGES)
def test_values_do_not_change(change):
    for kind in (Ours, Theirs):
        value = kind(name="a")
        with pytest.raises(FrozenInstanceError):
            change(value)
        assert value == kind(name="a")


def test_values_travel():
    value = OursBelow(name="a", tags=("b",))
    assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == copy.copy(value) == value
    assert {value: 1}[OursBelow(name="a", tags=("b",))] == 1
    with pytest.raises(TypeError):
        hash(Ours(name="a", tags=["b"]))
    for ours, theirs in PAIRS:
        assert [one.name for one in fields(ours)] == [one.name for one in fields(theirs)]
        # What is printed as JSON has the order of the fields, whichever were given.
        assert list(vars(ours(count=2, name="x"))) == list(vars(theirs(count=2, name="x")))
    assert Ours(name="a", count=5) != OursBelow(name="a") and Ours(name="a") != Theirs(name="a")
    assert OursBelow(name="a", count=4).double == 8


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


def values(**changes):
    return json.loads(json.dumps(document(GOOD))) | changes


def test_a_value_comes_back_and_names_of_newer_versions_are_left_out():
    assert from_document(Measured, values(new=1)) == GOOD
    assert type(from_document(Sample, {"rate": 2}).rate) is float
    found = from_document(Sample, {"rate": 1, "losses": [float("nan")]})
    assert found.losses[0] != found.losses[0]


def test_all_that_is_wrong_has_its_place():
    for found, faults in (
        ([], [("", "[] is not an object")]),
        ({}, [("name", "is missing"), ("samples", "is missing")]),
        (values(name=3, samples={}), [("name", "3 is not text"), ("samples", "{} is not a list")]),
        (values(samples=[{"rate": "1"}]), [("samples[0].rate", "'1' is not a number")]),
        (
            values(samples=[{"rate": 1, "losses": [1, None]}]),
            [("samples[0].losses[1]", "None is not a number")],
        ),
        (values(samples=[{"rate": 10**400}]), [("samples[0].rate", f"1{'0' * 36}... is not a number")]),
        (values(ranks=True), [("ranks", "True is not an integer")]),
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
    ):
        assert decoded(Measured, found)[1] == faults
        with pytest.raises(ValueError) as raised:
            from_document(Measured, found, "r" if faults[0][0] else "")
        assert faults[0][1] in str(raised.value)


def test_what_is_only_beyond_its_bounds_is_in_the_value():
    found, faults = decoded(Measured, values(ranks=0))
    assert found is not None and found.ranks == 0 and len(faults) == 1
    assert decoded(Measured, values(ranks="0"))[0] is None
    assert decoded(Sample, {"rate": 1, "losses": [float("inf"), 7]})[1] == []
    ((place, what),) = decoded(Sample, {"rate": 1, "losses": [10**400]})[1]
    assert place == "losses[0]" and what.endswith("is not a number"), "an integer beyond any float"
