"""Waiting for peers, and how a rank learns that one has ended.

Waits poll with back-off. A wait lasts as long as its peers live. One that has ended or given up makes it a
`HorovodInternalError` that names the ranks and the operation, and so does the deadline, where the user set
one: no time is too long for a rank that lives, as it may evaluate while the others wait. Long waits are
reported, ever less often.

There are three sources of ends: a flag in the shared memory of the host (`agreement_barrier`), a message from
a rank of another host, and the file in which Ringleader's launcher notes every end. Under a plain ``mpirun``
there are the first two.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from ringleader.engine.communicator import (
    LOOKS,
    NAP_SHARE,
    Communicator,
    Mailbox,
    RequestSleep,
    World,
    nap_seconds,
)
from ringleader.engine.engine_settings import EngineSettings
from ringleader.engine.exceptions import HorovodInternalError, known_to_peers
from ringleader.engine.negotiation import numbered

LOOK_SECONDS = 0.02
"""How often a long wait looks for ended peers."""
GRACE_SECONDS = 1.0
"""After a peer ended, a wait that cannot tell whom it waits for gets this long to be done after all."""
NAP_SECONDS = 0.001


class End(IntEnum):
    """How a rank ended."""

    FINISHED = 1
    RAISED = 2
    SHUT_DOWN = 3
    BROKEN = 4
    """It lives, but an operation of one of its engines ended with an error, so that this engine does nothing
    any more."""


_IN_WORDS = {
    End.FINISHED: "has ended",
    End.RAISED: "ended with an error",
    End.SHUT_DOWN: "was shut down (hvd.shutdown)",
    End.BROKEN: "gave up in an operation (see its own error)",
}


class PeerEnd(NamedTuple):
    """What is known of a rank that takes part no more."""

    end: End
    exit_code: int | None = None
    """Of its process, where the launcher knows it."""

    def __str__(self) -> str:
        code = "" if self.exit_code is None else f" with exit code {self.exit_code}"
        return _IN_WORDS[self.end] + code


LivenessSource = Callable[[], Mapping[int, PeerEnd]]
"""Returns the ranks that have ended so far, and how."""


class StatusFile:
    """The launcher's file: one JSON object per line, such as ``{"ended": [[0, 3], [7, 7]], "exit_code": 0}``.

    Ranks are pairs of first and last; a single rank may stand as a number.
    """

    def __init__(self, path: Path) -> None:
        """Remember the file; it need not exist yet."""
        self._path = path
        self._read = 0
        self._ended: dict[int, PeerEnd] = {}

    def __call__(self) -> dict[int, PeerEnd]:
        """Return every rank that the file says has ended."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                text = file.read()
        except OSError:
            return self._ended
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            self._note(line)
        return self._ended

    def _note(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            ended, code = message.get("ended"), message.get("exit_code")
            pairs = [(ended, ended)] if isinstance(ended, int) else [(first, last) for first, last in ended]
            ranks = [rank for first, last in pairs for rank in range(first, last + 1)]
        except (ValueError, TypeError, AttributeError):
            return
        self._ended.update(dict.fromkeys(ranks, PeerEnd(End.FINISHED, code)))


class EndMessages:
    """Messages between hosts: a rank that ends before others tells them."""

    TAG = 77

    def __init__(self, control: Communicator) -> None:
        """Use a communicator over which nothing else has this tag."""
        self._mailbox = Mailbox(control)
        self._ended: dict[int, PeerEnd] = {}
        self._broken: dict[int, dict[int, PeerEnd]] = {}
        self._looking = threading.Lock()
        self.sent = self._mailbox.sent

    def __call__(self) -> dict[int, PeerEnd]:
        """Return every rank that has said so far that it ends."""
        self._listen()
        return dict(self._ended)

    def broken(self, number: int) -> dict[int, PeerEnd]:
        """Return every rank that has said so far that its engine of a process set is broken."""
        self._listen()
        return dict(self._broken.get(number, {}))

    def _listen(self) -> None:
        # Two threads that saw the same message would wait for it both, and one of them for ever.
        if self._looking.acquire(blocking=False):
            try:
                for source, message in self._mailbox.received(self.TAG):
                    how, number = array("i", message)
                    known = self._broken.setdefault(number, {}) if how == End.BROKEN else self._ended
                    known[source] = PeerEnd(End(how))
            finally:
                self._looking.release()

    def send(self, how: End, ranks: Sequence[int], *, number: int = 0) -> None:
        """Tell ``ranks``; does not wait for them. ``number`` is that of a process set, for `End.BROKEN`."""
        for rank in ranks:
            self._mailbox.send(array("i", [how, number]).tobytes(), rank, self.TAG)

    def drain(self, seconds: float) -> None:
        """Have messages sent, for at most this long."""
        end = time.monotonic() + seconds
        while not self.sent() and time.monotonic() < end:
            time.sleep(NAP_SECONDS)


class PeerWait:
    """How this rank waits."""

    def __init__(
        self,
        *,
        rank: int,
        liveness_sources: Sequence[LivenessSource],
        warn_seconds: float,
        deadline_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),  # noqa: T201
        why_broken: Callable[[], str] = str,
        sleep: RequestSleep | None = None,
    ) -> None:
        """Take the sources that tell which ranks have ended.

        ``why_broken`` says why none of the ranks can continue, empty as long as they can: in an elastic job
        the end of one is the end of the generation. ``sleep``: where something wakes this rank when requests
        are done, as MPI proxies do.
        """
        self._rank = rank
        self._liveness_sources = liveness_sources
        self._warn_seconds = warn_seconds
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._say = say
        self.why_broken = why_broken
        """Says why none of the ranks can continue."""
        self._sleep = sleep
        self.subject: object = ""
        """What is being waited for, in words; the engine sets it before an operation."""
        self.deadlock: Callable[[float, object], str] | None = None
        """Says why a wait in which ranks agree is in vain, empty as long as none is known to be; it is given
        the time at which the wait began, and its subject."""
        self.cancelled = ""
        """Why every wait is to end with an error, empty as long as none is."""
        self.abandoned: list[object] = []
        """Requests of MPI's whose wait ended with an error. MPI may still write to their memory, so they are
        kept for ever, and what they belong to is not given back."""

    def ended(self) -> dict[int, PeerEnd]:
        """Return the peers that have ended so far and how."""
        gone: dict[int, PeerEnd] = {}
        for sign in self._liveness_sources:
            gone.update(sign())
        gone.pop(self._rank, None)
        return gone

    def until(
        self,
        ready: Callable[[], bool],
        missing: Callable[[], Sequence[int] | None],
        *,
        agreeing: bool = False,
        nap_share: float = 0.0,
        sleep: RequestSleep | None = None,
    ) -> None:
        """Wait until ``ready``. ``missing`` tells which ranks are waited for, None where that is unknown.

        ``agreeing``: for ranks that have still to come, with nothing of the operation under way.
        ``nap_share``: see `nap_seconds`. ``sleep``: in place of naps.
        """
        start = self._clock()
        look, warn, grace_end = start + LOOK_SECONDS, start + self._warn_seconds, None
        done = -1
        while not ready():
            now = self._clock()
            if sleep is not None:
                done = sleep(LOOK_SECONDS, done)
            else:
                time.sleep(nap_seconds(now - start, nap_share))
            if now < look:
                continue
            look = now + LOOK_SECONDS
            if self.cancelled:
                raise known_to_peers(self.cancelled)
            broken = self.why_broken()
            if broken and not ready():
                raise known_to_peers(f"{broken} while rank {self._rank} waits in {self.subject}")
            if agreeing and self.deadlock is not None:
                words = self.deadlock(start, self.subject)
                if words:
                    raise HorovodInternalError(words)
            grace_end = self._look_for_ended(ready, missing, now, grace_end)
            if now - start > self._deadline_seconds:
                raise HorovodInternalError(
                    f"rank {self._rank} waited {now - start:.0f} s in {self.subject} for {_ranks(missing())}"
                )
            if now > warn:
                warn = now + max(self._warn_seconds, now - start)
                self._say(
                    f"ringleader: rank {self._rank} has waited {now - start:.0f} s in {self.subject} "
                    f"for {_ranks(missing())}"
                )

    def until_done(self, request: Any, *, agreeing: bool = False) -> None:
        """Wait for a request of MPI's, which does not tell whom it waits for."""
        self.until_all_done((request,), agreeing=agreeing)

    def until_all_done(self, requests: Sequence[Any], *, agreeing: bool = False) -> None:
        """Wait for requests of MPI's, which do not tell whom they wait for."""
        left = list(reversed(requests))
        looks = range(LOOKS if self._sleep is None else 1)  # an MPI proxy asks MPI by itself

        def ready() -> bool:
            # Tested one by one: a list costs mpi4py more.
            for _ in looks:
                while left and left[-1].Test():
                    left.pop()
                if not left:
                    return True
            return False

        try:
            self.until(ready, lambda: None, agreeing=agreeing, nap_share=NAP_SHARE, sleep=self._sleep)
        except BaseException:
            self.abandoned.extend(left)
            raise

    def _look_for_ended(
        self,
        ready: Callable[[], bool],
        missing: Callable[[], Sequence[int] | None],
        now: float,
        grace_end: float | None,
    ) -> float | None:
        """Raise if a rank that is waited for has ended; return when the benefit of the doubt runs out."""
        gone = self.ended()
        if not gone:
            return None
        absent = missing()
        if absent is not None:
            gone = {rank: how for rank, how in gone.items() if rank in absent}
        elif now < (grace_end or now + GRACE_SECONDS):
            return grace_end or now + GRACE_SECONDS
        # Who gave up because of another is not the cause where that one is known too.
        gone = {rank: how for rank, how in gone.items() if how.end is not End.BROKEN} or gone
        # A rank may arrive and then end, so its arrival is looked for once more after its end was seen.
        if not gone or ready():
            return None
        who = " and ".join(f"rank {rank} {how}" for rank, how in sorted(gone.items())[:4])
        raise known_to_peers(f"{who} while rank {self._rank} waits in {self.subject}")


def peer_wait_for(
    rank: int,
    sources: Sequence[LivenessSource],
    settings: EngineSettings,
    world: World | None = None,
) -> PeerWait:
    """Return how the rank of this number waits, as the environment asks for; ``world``: for its requests."""
    return PeerWait(
        rank=rank,
        liveness_sources=sources,
        warn_seconds=settings.limits.warn,
        deadline_seconds=settings.deadline_seconds,
        why_broken=str if world is None else world.why_broken,
        sleep=None if world is None else world.sleep,
    )


def _ranks(ranks: Sequence[int] | None) -> str:
    if ranks is None:
        return "a rank on another host"
    return numbered(ranks) if ranks else "its peers"
