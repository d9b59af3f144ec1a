"""Tasks that live and end together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Together:
    """Tasks of which the first to fail ends the others."""

    def __init__(self) -> None:
        """Start with none."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._error: BaseException | None = None
        self._has_failed = asyncio.Event()

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start a task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def failure(self) -> None:
        """Wait for a task to fail, and raise what it raised."""
        await self._has_failed.wait()
        assert self._error is not None
        raise self._error

    async def ended(self, timeout: float) -> bool:
        """Wait for every task to end by itself; False where some have not in so many seconds."""
        if not self._tasks:
            return True
        _, pending = await asyncio.wait(self._tasks, timeout=timeout)
        return not pending

    async def cancel(self) -> None:
        """End every task."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and self._error is None:
            self._error = error
            self._has_failed.set()
