"""What a rank's agent gathers for the proof of the transport: counters of the host, and libraries' logs.

Nothing here breaks or delays a job: what goes wrong is told as the reason why there is no evidence.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False  # see fast_stdlib.py
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ringleader.agents.library_logs import LibraryLogs


class RankEvidence:
    """From just before the rank's start to just after its end."""

    def __init__(self) -> None:
        """Gather nothing, until the launcher asks for it."""
        self._counters: dict[str, Any] | None = None
        self._logs: LibraryLogs | None = None
        self._missing: list[str] = []
        self._patience = 1.0

    def prepare(self) -> None:
        """Load what reads counters, while the other agents are still on their way."""
        from ringleader.agents import traffic_counters  # noqa: F401

    def begin(self, wanted: Mapping[str, Any], env: dict[str, str], directory: str) -> None:
        """Read the counters and ask libraries for logs, as far as ``wanted`` says; may add to ``env``.

        ``wanted``: ``counters``, whether this agent reads those of its host, ``patience`` (how many times
        longer than usual that may take), and ``logs``, see `LibraryLogs`.
        """
        try:
            if wanted.get("logs"):
                from ringleader.agents.library_logs import LibraryLogs

                self._logs = LibraryLogs(wanted["logs"], directory)
                self._logs.add_to(env, time.time())
            if wanted.get("counters"):
                from ringleader.agents import traffic_counters

                self._patience = float(wanted.get("patience", 1.0))
                self._counters = traffic_counters.snapshot(patience=self._patience)
        except Exception as error:
            self._missing.append(f"before the start: {type(error).__name__}: {error}")

    def end(self) -> tuple[dict[str, Any], bytes]:
        """Return what was found, empty where there is nothing to tell, and lines for the rank's stderr."""
        found: dict[str, Any] = {}
        for_the_user = b""
        try:
            if self._counters is not None:
                from ringleader.agents import traffic_counters

                after = traffic_counters.snapshot(patience=self._patience)
                found["before"], found["after"] = self._counters, after
            if self._logs is not None and (logs := self._logs.read()):
                found["logs"] = logs
                for_the_user = "".join(f"{line}\n" for line in self._logs.for_the_user(logs)).encode()
        except Exception as error:
            self._missing.append(f"after the end: {type(error).__name__}: {error}")
        if self._missing:
            found["missing"] = "; ".join(self._missing)
        return found, for_the_user
