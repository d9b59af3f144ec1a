"""Sequences of what scripts do with an optimizer: how they are drawn, shrunk and judged, without ranks."""

import json
from copy import deepcopy
from typing import Any

import pytest
from tests.sequences.generator import draw, shrinks
from tests.sequences.judge import Failure, Trials, reference, verdict

pytestmark = pytest.mark.torch


def test_a_seed_is_one_sequence_that_json_can_hold() -> None:
    for seed in range(50):
        assert json.loads(json.dumps(draw(seed))) == draw(seed)


@pytest.mark.parametrize("seed", range(6))
def test_plain_pytorch_can_carry_a_sequence_and_smaller_ones_out(seed: int) -> None:
    sequence = draw(seed)
    smaller = list(shrinks(sequence))
    assert all(one != sequence for one in smaller)
    for one in [sequence, *smaller[:: max(1, len(smaller) // 2)]]:
        records = reference(one)
        assert [len(each) for each in records] == [len(one["steps"])] * one["size"]


SEQUENCE: dict[str, Any] = {
    "seed": 1,
    "size": 2,
    "per_host": "",
    "net": {"conv": False, "branch": "turns", "embedding": "tied"},
    "optimizer": "momentum",
    "optimizers": "one",
    "wrap": {"groups": 2},
    "start": [],
    "steps": [
        {
            "zero": ["first", "none"],
            "before": [["mul"]],
            "update": ["step"],
            "backward": [["sync", "plain"]],
            "edits": [],
            "after": [["keep", "one"]],
        }
        for _ in range(3)
    ],
}


def _with_changed(change: Any) -> list[Any]:
    records = deepcopy(reference(SEQUENCE))
    change(records[1][1])
    return records


def _change_parameter(record: dict[str, Any]) -> None:
    record["parameters"][0][0] += 0.01


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda _record: None, None),
        (lambda record: record.update(digest="other"), "ranks differ"),
        (_change_parameter, "parameters differ"),
        (lambda record: record.update(rates=[[0.05]]), "learning rates"),
        (lambda record: record["kept"].update(dict.fromkeys(record["kept"], False)), "kept gradient changed"),
    ],
    ids=["nothing", "bits", "a parameter", "a learning rate", "a kept gradient"],
)
def test_what_differs_is_named(change: Any, why: str | None) -> None:
    found = verdict(SEQUENCE, _with_changed(change), reference(SEQUENCE))
    assert found is None if why is None else found is not None and found.startswith(why)


def test_a_failure_is_made_small() -> None:
    """Ranks that differ after a `mul`: one step with that operation is left."""

    def answer(sequence: dict[str, Any]) -> list[Any]:
        records = reference(sequence)
        for at, step in enumerate(sequence["steps"]):
            if ["mul"] in step["before"]:
                records[1][at]["digest"] = "other"
        return [{"records": one} for one in records]

    trials = Trials(answer)
    why = trials.failure(SEQUENCE)
    assert why is not None
    found = trials.smallest(Failure(sequence=SEQUENCE, why=why)).sequence
    assert [step["before"] for step in found["steps"]] == [[["mul"]]]
    assert (found["wrap"], found["optimizer"], found["net"]["embedding"]) == ({}, "sgd", "none")
