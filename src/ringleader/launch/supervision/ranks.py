"""A rank as the launcher knows it, and the streams between ranks and our own standard streams and files.

An agent sends output only as far as the launcher has granted it (a window), as plain programs write only as
far as a pipe takes it; what agents say of their ranks is never held back. So a reader that reads nothing
slows the ranks down, and nothing else: time-outs, ends and signals continue. Our standard input goes to rank
0 one piece at a time, when rank 0 asks for it. Who serves the agents is in ``session``.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringleader.agents import protocol
from ringleader.launch.exit_reason import Cause, Why, signal_name
from ringleader.launch.outcome import Listener, RankEnd
from ringleader.launch.rank_output import STREAMS, LineCutter, OutputFiles
from ringleader.launch.supervision.agent_connections import AgentConnection, AgentServer
from ringleader.plan.rank_placement import HostFacts, RankPlace

MOST = 8 * 1024 * 1024
"""Bytes that wait for a reader above which ranks are granted nothing more."""
UNREAD_SECONDS = 10.0
"""After the end of a job that did not end well: for a reader that takes nothing, before the rest is lost."""
SIGNALED_SECONDS = 1.0
"""The same where a signal ended the job: whoever sent it wants an end."""


@dataclass(eq=False, kw_only=True)
class RankState:
    """One rank, from the plan to its end."""

    place: RankPlace
    host: HostFacts
    rank: int = field(init=False)
    """Its number now; in an elastic job each generation may give it another."""
    connection: AgentConnection | None = None
    """Its agent's connection, once it has reported."""
    hello: dict[str, Any] | None = None
    """What its agent said about itself."""
    running: bool = False
    """The command has been started."""
    failed_at: float | None = None
    """When an exception left its script, by the launcher's clock; its exit handlers may still run."""
    failing_code: int | None = None
    """The exit code that it will have then."""
    end: RankEnd | None = None
    """How it ended, once it has."""
    done: bool = False
    """All its output has arrived."""
    stacks_requested: bool = False
    """Its stacks were requested and the answer has not come yet."""
    record_requested: bool = False
    """The same of what it knows of its collectives."""
    pythons: list[dict[str, Any]] = field(default_factory=list)
    """Its Pythons and their stacks, as its agent sent them last."""
    mute: list[dict[str, str]] = field(default_factory=list)
    """Its processes that write no stack."""
    unshown: int = 0
    """Its Pythons beyond those whose stacks are sent."""
    has_groups: bool = False
    """It has process groups of `torch.distributed`."""
    record: dict[str, Any] | None = None
    """What it reported last of its collectives."""
    cutters: dict[str, LineCutter] = field(default_factory=lambda: {name: LineCutter() for name in STREAMS})
    window: int = protocol.LARGEST_WINDOW
    """Bytes of output that may be on its way to us; its agent knows the number from its start."""
    to_grant: int = 0
    """Bytes of output that it has sent and not been granted again."""
    abort_code: int | None = None
    """What it gave MPI_Abort, where its MPI lets the rank itself say so."""
    traffic: list[dict[str, Any]] = field(default_factory=list)
    """What its engine reported of its bytes, once for each life of the engine."""
    differences: list[dict[str, Any]] = field(default_factory=list)
    """What it reported of parameters that differ between ranks."""
    evidence: dict[str, Any] | None = None
    """What its agent gathered for the proof of the transport."""
    result: bytearray = field(default_factory=bytearray)
    """What a rank of ``ringleader.run`` sent back."""
    trace: Path | None = None
    """The file that its trace is written to while it arrives, with ``run --profile``."""
    trace_error: OSError | None = None
    """Why that ended."""

    def __post_init__(self) -> None:
        self.rank = self.place.rank

    def keep_trace(self, directory: Path, piece: bytes) -> None:
        """Append to its trace's file: all ranks' traces may be more than the memory holds."""
        mode = "wb" if self.trace is None else "ab"
        self.trace = directory / f"rank-{self.rank}.json.gz.part"
        if self.trace_error is None:
            try:
                with self.trace.open(mode) as file:
                    file.write(piece)
            except OSError as error:
                self.trace_error = error

    @property
    def name(self) -> str:
        """``rank 1 (h2)``, for messages."""
        return f"rank {self.rank} ({self.host.host.name})"

    @property
    def has_failed(self) -> bool:
        """An exception has left its script, or it has ended as a failure."""
        return self.failed_at is not None or (self.end is not None and self.end.failed)

    @property
    def how_it_ended(self) -> str:
        """How it ended, for messages; empty: it runs."""
        if self.end is not None and self.end.signal is not None:
            return f"ended by {signal_name(self.end.signal)}"
        if self.end is None:
            return "" if self.failed_at is None else f"failed with exit code {self.failing_code}"
        known = self.end.exit_code is not None
        return f"ended with exit code {self.end.exit_code}" if known else self.end.reason or "has ended"


class OutputFlow:
    """Grants agents more as the listener and the files take what came."""

    def __init__(self, listener: Listener, files: OutputFiles | None, tell: Callable[..., Any]) -> None:
        """``tell(state, do=…)`` sends a message to a rank's agent."""
        self._listener, self._files, self._tell = listener, files, tell
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
        if state.to_grant >= state.window // 2:
            self.held.add(state)
            self.tick()

    def tick(self) -> None:
        """Grant what was held back, if the readers have caught up; report a full disk once."""
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
        if not waiting or cause is None:
            return not waiting
        if self._give_up_at is None or waiting != self._seen:
            patience = SIGNALED_SECONDS if cause.why is Why.SIGNAL else UNREAD_SECONDS
            self._give_up_at, self._seen = now + patience, waiting
        return now > self._give_up_at

    def hurry(self) -> None:
        """Wait no longer for readers: a second signal came."""
        self._give_up_at, self._seen = float("-inf"), self.waiting


class StdinForwarding:
    """Reads a descriptor only when the rank has taken what was read before."""

    def __init__(self, selector: selectors.BaseSelector, server: AgentServer, fd: int | None) -> None:
        """``fd``: what to read; ``None``: nothing."""
        self._selector, self._server, self._fd = selector, server, fd
        self._connection: AgentConnection | None = None
        self._registered = False

    def asked(self, connection: AgentConnection | None) -> None:
        """Rank 0's agent has room for more."""
        self._connection = connection
        if self._fd is not None and not self._registered and not self._belongs_to_somebody_else(self._fd):
            self._registered = True
            try:
                self._selector.register(self._fd, selectors.EVENT_READ, self.serve)
            except PermissionError:  # of a file, which never has to be waited for
                self._registered = False
                self._pass_on(self._fd)

    @staticmethod
    def _belongs_to_somebody_else(fd: int) -> bool:
        """True in the background of our controlling terminal, where reading would stop us (SIGTTIN)."""
        try:
            return os.isatty(fd) and os.tcgetpgrp(fd) != os.getpgrp()
        except OSError:  # ENOTTY: a terminal that is not our controlling terminal has no background
            return False

    def serve(self, fd: int) -> None:
        """Something can be read: pass it on, and wait to be asked again."""
        if self._connection is None or not self._registered:
            return  # rank 0 has ended since the selector saw it
        self._unregister()
        self._pass_on(fd)

    def _pass_on(self, fd: int) -> None:
        assert self._connection is not None
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            self.asked(self._connection)
            return
        except OSError:
            data = b""
        if data:
            self._server.send(self._connection, protocol.frame(protocol.STDIN, data))
        else:
            self._server.send(self._connection, protocol.message(do="end_of_input"))
            self._fd = None

    def continued(self) -> None:
        """We were stopped and run again, perhaps in the background of the terminal, or no more there."""
        self._unregister()
        if self._connection is not None:
            self.asked(self._connection)

    def _unregister(self) -> None:
        if self._registered and self._fd is not None:
            self._selector.unregister(self._fd)
            self._registered = False

    def close(self) -> None:
        """Rank 0 has ended: leave the rest of the input to whoever reads it next."""
        self._unregister()
        self._fd = None
