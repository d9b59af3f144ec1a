"""The ranks' output between their agents and whoever reads it: who may send more, and when all has arrived.

An agent sends output only as far as the launcher has granted it (a window), as plain programs write only as
far as a pipe takes it; what agents say of their ranks is never held back. So a reader that reads nothing
slows the ranks down, and nothing else: time-outs, ends and signals go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringleader.launch.exit_reason import Cause, Why
from ringleader.launch.outcome import Listener
from ringleader.launch.rank_output.output_files import OutputFiles
from ringleader.launch.supervision.rank_state import RankState
from ringleader.ranks import protocol

MOST = 8 * 1024 * 1024
"""Bytes that wait for a reader above which ranks are granted nothing more."""
UNREAD_SECONDS = 10.0
"""After the end of a job that did not end well: for a reader that takes nothing, before the rest is lost."""
SIGNALLED_SECONDS = 1.0
"""The same where a signal ended the job: whoever sent it wants an end."""


class OutputFlow:
    """Grants agents more as the listener and the files take what came."""

    def __init__(
        self, listener: Listener, files: OutputFiles | None, ranks: int, tell: Callable[..., Any]
    ) -> None:
        """``tell(state, do=…)`` sends a message to a rank's agent."""
        self._listener = listener
        self._files = files
        self._tell = tell
        self._enough = protocol.window(ranks) // 2
        self.held: set[RankState] = set()
        """Ranks that wait for a reader: while there are any, look again soon."""
        self._seen = 0
        self._give_up_at: float | None = None

    @property
    def waiting(self) -> int:
        """Bytes that were received and not passed on yet."""
        return self._listener.waiting() + (self._files.waiting if self._files is not None else 0)

    def took(self, state: RankState, size: int) -> None:
        """Count bytes of a rank; grant it as many again, where whoever reads keeps up."""
        state.to_grant += size
        if state.to_grant >= self._enough:
            self.held.add(state)
            self.tick()

    def tick(self) -> None:
        """Grant what was held back, if the readers have caught up; tell of a full disk once."""
        if self.held and self.waiting < MOST:
            for state in self.held:
                self._tell(state, do="written", bytes=state.to_grant)
                state.to_grant = 0
            self.held.clear()
        if self._files is not None and (text := self._files.trouble()):
            self._listener.warning(text)

    def is_over(self, now: float, cause: Cause | None) -> bool:
        """Say whether all is passed on, or a job that ended badly has waited long enough for its reader."""
        waiting = self.waiting
        if not waiting:
            return True
        if cause is None:
            return False
        if self._give_up_at is None or waiting != self._seen:
            patience = SIGNALLED_SECONDS if cause.why is Why.SIGNAL else UNREAD_SECONDS
            self._give_up_at, self._seen = now + patience, waiting
        return now > self._give_up_at

    def hurry(self) -> None:
        """Wait no longer for readers: a second signal came."""
        self._give_up_at, self._seen = float("-inf"), self.waiting
