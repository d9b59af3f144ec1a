"""Setting conditions: the reference controller's rules, and which one stands last."""

import pytest

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.mpijob.status import Condition, ConditionType, Truth
from ringleader.kubernetes.operator.decide.conditions import (
    Conditions,
    find,
    shortened,
    with_condition,
    with_reason,
)

C = ConditionType
OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def put(*types: tuple[ConditionType, bool]) -> Conditions:
    """Conditions set one after the other, all at the same moment."""
    found: Conditions = ()
    for type_, truth in types:
        found = with_condition(found, type_, Truth.TRUE if truth else Truth.FALSE, str(type_), "", OLD)
    return found


def short(conditions: Conditions) -> str:
    """``Running=False Succeeded=True``."""
    return " ".join(f"{one.type}={one.status}" for one in conditions)


@pytest.mark.parametrize(
    ("before", "set_", "after"),
    [
        ([], C.CREATED, "Created=True"),
        ([C.CREATED], C.RUNNING, "Created=True Running=True"),
        ([C.CREATED, C.RUNNING], C.SUCCEEDED, "Running=False Created=True Succeeded=True"),
        ([C.CREATED, C.RUNNING], C.FAILED, "Running=False Created=True Failed=True"),
        ([C.CREATED, C.FAILED], C.SUCCEEDED, "Failed=False Created=True Succeeded=True"),
        ([C.CREATED, C.RUNNING], C.RESTARTING, "Running=False Created=True Restarting=True"),
        ([C.CREATED, C.RESTARTING], C.RUNNING, "Created=True Running=True"),
        ([C.CREATED, C.RESTARTING], C.FAILED, "Restarting=False Created=True Failed=True"),
        ([C.CREATED, C.RESTARTING], C.SUSPENDED, "Restarting=False Created=True Suspended=True"),
    ],
)
def test_what_a_condition_does_to_the_others(
    before: list[ConditionType], set_: ConditionType, after: str
) -> None:
    found = with_condition(put(*((one, True) for one in before)), set_, Truth.TRUE, "R", "m", NEW)
    assert short(found) == after
    assert found[-1].type == set_, "the deciding condition stands last"


def test_a_false_condition_does_not_stand_last_while_another_holds() -> None:
    found = with_condition(
        put((C.CREATED, True), (C.SUSPENDED, True)), C.SUSPENDED, Truth.FALSE, "R", "", NEW
    )
    assert short(found) == "Suspended=False Created=True"


def test_setting_the_same_status_and_reason_changes_nothing_whatever_the_message() -> None:
    before = put((C.CREATED, True), (C.RUNNING, True))
    assert with_condition(before, C.RUNNING, Truth.TRUE, "Running", "other words", NEW) is before


def test_a_new_reason_keeps_the_time_of_the_last_transition() -> None:
    found = find(with_condition(put((C.RUNNING, True)), C.RUNNING, Truth.TRUE, "Other", "m", NEW), C.RUNNING)
    assert found == Condition(
        type="Running",
        status=Truth.TRUE,
        reason="Other",
        message="m",
        last_update_time=NEW,
        last_transition_time=OLD,
    )


@pytest.mark.parametrize("set_", [C.SUCCEEDED, C.FAILED, C.RESTARTING])
def test_a_condition_that_is_pushed_aside_takes_the_time_of_it(set_: ConditionType) -> None:
    found = find(with_condition(put((C.RUNNING, True)), set_, Truth.TRUE, "R", "m", NEW), C.RUNNING)
    assert (found.last_transition_time, found.last_update_time) == (NEW, NEW)


def test_another_reason_in_place() -> None:
    found = with_reason(put((C.CREATED, True), (C.RUNNING, True)), C.CREATED, "Why", "m", NEW)
    assert short(found) == "Created=True Running=True"
    assert (found[0].reason, found[0].last_transition_time, found[0].last_update_time) == ("Why", OLD, NEW)


@pytest.mark.parametrize(("length", "kept"), [(1024, 1024), (1025, 1024), (5000, 1024)])
def test_messages_are_cut(length: int, kept: int) -> None:
    text = shortened("x" * length)
    assert len(text) == kept
    assert text.endswith("..." if length > 1024 else "x")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T00:01:00.500000Z", 60.5),
        ("1970-01-01T01:01:00+01:00", 60.0),
        ("", None),
        ("soon", None),
    ],
)
def test_moments(text: str, seconds: float | None) -> None:
    assert rfc3339.seconds_of(text) == seconds


def test_a_moment_is_written_in_whole_seconds_of_utc() -> None:
    assert rfc3339.text_of(1767225600.9) == "2026-01-01T00:00:00Z"
