"""The page about the operator names every reason that it gives, and every annotation that it keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringleader.kubernetes import why_not_running
from ringleader.kubernetes.mpijob import annotations
from ringleader.kubernetes.operator.decide import conditions, first_failure, obstacles, restarts

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "operator.md").read_text(encoding="utf-8")

REASONS = (
    conditions.CREATED,
    conditions.RUNNING,
    conditions.SUCCEEDED,
    conditions.FAILED,
    conditions.EVICTED,
    conditions.SUSPENDED,
    conditions.RESUMED,
    conditions.RESTARTING,
    conditions.INVALID,
    conditions.CORRECTED,
    conditions.FOREIGN,
    conditions.API_WARNING,
    conditions.TEMPLATE_RESTART_POLICY,
    conditions.WORKER_FAILED,
    conditions.RESTART_LIMIT,
    conditions.DEADLINE,
    conditions.LAUNCHER_GONE,
    *(one for one in why_not_running._CONTAINERS if one != "ErrImagePull"),
    why_not_running.UNSCHEDULABLE,
    why_not_running.QUOTA,
    why_not_running.REJECTED,
    why_not_running.FORBIDDEN,
    why_not_running.REFUSED,
    obstacles.NO_LAUNCHER_POD,
    obstacles.STUCK_TERMINATING,
)


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_is_explained(reason: str) -> None:
    assert f"`{reason}`" in PAGE


@pytest.mark.parametrize(
    "name",
    [annotations.ON_WORKER_FAILURE, annotations.RESTART_LIMIT, first_failure.FIRST_FAILURE],
)
def test_every_annotation_is_explained(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("policy", annotations.KNOWN[annotations.ON_WORKER_FAILURE])
def test_every_policy_is_explained(policy: str) -> None:
    assert f"| `{policy}` |" in PAGE


def test_the_numbers_are_the_programs() -> None:
    first, longest = int(restarts.FIRST_PAUSE), int(restarts.LONGEST_PAUSE / 60)
    assert f"a pause of {first} s, then {2 * first} s, up to {longest} minutes" in PAGE
    assert f"else `backoffLimit`, else {restarts.DEFAULT_LIMIT}" in PAGE
    assert f"2 s, 4 s … {int(obstacles.LONGEST_PAUSE)} s" in PAGE
    assert f"`{obstacles.UNSCHEDULABLE}` (after {int(obstacles.PATIENCE)} s)" in PAGE
    assert f"still exists {int(obstacles.DELETION_PATIENCE)} s after its grace period" in PAGE
    assert f"no Pod for {int(obstacles.LAUNCHER_PATIENCE)} s" in PAGE
    assert f"{conditions.LONGEST_MESSAGE} characters" in PAGE
    assert f"A failure {int(first_failure.EPISODE / 60)} minutes older" in PAGE
