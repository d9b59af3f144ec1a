"""Sequences of what scripts do with an optimizer: how they are drawn, shrunk and judged, without ranks."""

from copy import deepcopy
from typing import Any

import pytest
from tests.sequences.judge import Trials, reference, verdict

pytestmark = pytest.mark.torch


STEP: dict[str, Any] = {"zero": ["first", "none"], "before": [["mul"]], "update": ["step"], "edits": []}
STEP |= {"backward": [["sync", "plain"]], "after": [["keep", "one"]]}
SEQUENCE: dict[str, Any] = {"seed": 1, "size": 2, "per_host": "", "optimizer": "momentum", "start": []}
SEQUENCE |= {"optimizers": "one", "wrap": {"groups": 2}, "steps": [deepcopy(STEP) for _ in range(3)]}
SEQUENCE |= {"net": {"conv": False, "branch": "turns", "embedding": "tied"}}


def _change_parameter(record: dict[str, Any]) -> None:
    record["parameters"][0][0] += 0.01


def test_what_differs_is_named() -> None:
    for change, why in (
        (lambda _record: None, ""),
        (lambda record: record.update(digest="other"), "ranks differ"),
        (_change_parameter, "parameters differ"),
        (lambda record: record.update(rates=[[0.05]]), "learning rates"),
        (lambda record: record["kept"].update(dict.fromkeys(record["kept"], False)), "kept gradient changed"),
    ):
        records = deepcopy(reference(SEQUENCE))
        change(records[1][1])
        found = verdict(SEQUENCE, records, reference(SEQUENCE))
        assert (found or "").startswith(why) and bool(found) == bool(why)


def test_a_failure_is_made_small() -> None:
    """Ranks that differ after a `mul`: one step with that operation is left."""

    def answer(sequence: dict[str, Any]) -> list[Any]:
        records = reference(sequence)
        for at, step in enumerate(sequence["steps"]):
            if ["mul"] in step["before"]:
                records[1][at]["digest"] = "other"
        return [{"records": one} for one in records]

    trials = Trials(answer)
    cause = trials.cause(SEQUENCE, trials.failure(SEQUENCE) or "")
    assert not isinstance(cause, str)
    found = trials.smallest(cause).sequence
    assert [step["before"] for step in found["steps"]] == [[["mul"]]]
    assert (found["wrap"], found["optimizer"], found["net"]["embedding"]) == ({}, "sgd", "none")
