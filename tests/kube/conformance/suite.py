"""Every check, and how one is put to a server."""

from __future__ import annotations

import asyncio

from tests.kube.conformance import (
    checks_access,
    checks_containers,
    checks_custom,
    checks_deletion,
    checks_lists,
    checks_objects,
    checks_patches,
    checks_validation,
    checks_watches,
)
from tests.kube.conformance.ground import Check, enter, leave
from tests.kube.conformance.http import Server, connected
from tests.kube.fake import FakeCluster

_MODULES = (
    checks_access,
    checks_containers,
    checks_custom,
    checks_deletion,
    checks_lists,
    checks_objects,
    checks_patches,
    checks_validation,
    checks_watches,
)
CHECKS = tuple(one for module in _MODULES for one in vars(module).values() if isinstance(one, Check))

PATIENCE = 60.0
"""Seconds that anything may take to come about where it is expected to."""


def put(check: Check, server: Server, *, fake: FakeCluster | None, patience: float = PATIENCE) -> None:
    """Put one check to a server; AssertionError where it does not hold."""

    async def run() -> None:
        async with connected(server) as http:
            ground = await enter(http, fake=fake, patience=patience)
            try:
                await check.run(ground)
            finally:
                await leave(ground)

    asyncio.run(run())
