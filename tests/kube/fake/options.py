"""What a request asks for besides its object: query parameters and bodies of deletions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.kube.fake.refusals import Refusal, bad_request


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """Options of create, update and patch."""

    dry_run: bool = False
    strict: bool = False
    """Unknown fields are refused (``fieldValidation=Strict``)."""
    manager: str = ""
    force: bool = False
    """An apply takes fields over from other managers."""
    user: str = ""
    """Who asks; empty: the cluster's own controllers."""

    @staticmethod
    def of(query: Mapping[str, str], user_agent: str, user: str = "") -> WriteOptions:
        return WriteOptions(
            user=user,
            dry_run=dry_run(query.get("dryRun")),
            strict=query.get("fieldValidation") == "Strict",
            manager=query.get("fieldManager", "") or user_agent.partition("/")[0],
            force=query.get("force", "") in ("true", "1"),
        )


@dataclass(frozen=True, kw_only=True)
class DeleteOptions:
    """Options of delete."""

    dry_run: bool = False
    propagation: str = ""
    """Background, Foreground or Orphan; empty: the kind's own."""
    grace: int | None = None
    uid: str = ""
    version: str = ""
    user: str = ""
    """Who asks; empty: the cluster's own controllers."""

    @staticmethod
    def of(query: Mapping[str, str], body: Mapping[str, Any], user: str = "") -> DeleteOptions:
        conditions = body.get("preconditions") or {}
        grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
        propagation = body.get("propagationPolicy") or query.get("propagationPolicy") or ""
        if propagation not in ("", "Background", "Foreground", "Orphan"):
            raise Refusal(
                422,
                "Invalid",
                f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: '
                f'"{propagation}": supported values: "Background", "Foreground", "Orphan", "nil"',
            )
        every = body.get("dryRun")
        return DeleteOptions(
            user=user,
            dry_run=dry_run(every[0] if every else query.get("dryRun")),
            propagation=propagation,
            grace=None if grace is None else int(grace),
            uid=conditions.get("uid") or "",
            version=conditions.get("resourceVersion") or "",
        )


def dry_run(text: str | None) -> bool:
    if not text:
        return False
    if text != "All":
        raise bad_request(f'dryRun: Unsupported value: "{text}": supported values: "All"')
    return True
