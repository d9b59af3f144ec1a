"""`value_class.dataclass` makes what the standard library's would make."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ringleader import value_class


@value_class.dataclass(frozen=True, kw_only=True)
class Ours:
    """A base with every kind of field."""

    name: str
    count: int = 1
    tags: tuple[str, ...] = value_class.field(default_factory=lambda: ("a",))
    noise: object = value_class.field(default=None, compare=False, repr=False)

    @property
    def double(self) -> int:
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
def test_values_are_equal_where_the_standard_librarys_are(one: dict[str, Any], two: dict[str, Any]) -> None:
    for ours, theirs in PAIRS:
        assert (ours(**one) == ours(**two)) is (theirs(**one) == theirs(**two))
        if ours(**one) == ours(**two):
            assert hash(ours(**one)) == hash(ours(**two))
        assert asdict(ours(**one)) == asdict(theirs(**one))
        assert repr(ours(**one)).replace("Ours", "Theirs") == repr(theirs(**one))
        assert asdict(replace(ours(**one), count=9)) == asdict(replace(theirs(**one), count=9))


def test_fields_and_classes_are_told_apart() -> None:
    for ours, theirs in PAIRS:
        assert [one.name for one in fields(ours)] == [one.name for one in fields(theirs)]
        assert dataclasses.is_dataclass(ours)
    assert Ours(name="a", count=5) != OursBelow(name="a")
    assert Ours(name="a") != Theirs(name="a")
    assert OursBelow(name="a", count=4).double == 8


@pytest.mark.parametrize("arguments", [{}, {"count": 1}, {"name": "a", "nme": "b"}])
def test_arguments_that_lack_or_are_unknown_are_refused(arguments: dict[str, Any]) -> None:
    for kind in (Ours, Theirs):
        with pytest.raises(TypeError, match=r"name|nme"):
            kind(**arguments)


CHANGES: tuple[Callable[[Any], None], ...] = (
    lambda it: setattr(it, "name", "b"),
    lambda it: setattr(it, "unknown", 1),
    lambda it: delattr(it, "name"),
)


@pytest.mark.parametrize("change", CHANGES)
def test_values_do_not_change(change: Callable[[Any], None]) -> None:
    for kind in (Ours, Theirs):
        value = kind(name="a")
        with pytest.raises(FrozenInstanceError):
            change(value)
        assert value == kind(name="a")


def test_values_travel() -> None:
    value = OursBelow(name="a", tags=("b",))
    assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == copy.copy(value) == value
    assert {value: 1}[OursBelow(name="a", tags=("b",))] == 1


def test_an_unhashable_field_makes_a_value_unhashable() -> None:
    with pytest.raises(TypeError):
        hash(Ours(name="a", tags=["b"]))  # type: ignore[arg-type]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_vars_has_the_order_of_the_fields(ours: Callable[..., Any], theirs: Callable[..., Any]) -> None:
    """What is printed as JSON has it, whichever fields were given."""
    assert list(vars(ours(count=2, name="x"))) == list(vars(theirs(count=2, name="x")))
