"""Waiting for peers: polling with back-off, which also looks for peers that have ended.

A wait lasts as long as its peers live. One that has ended or given up makes it a `HorovodInternalError` that
names the ranks and the operation, and so does the deadline, where the user set one: no time is too long for
a rank that lives, as it may evaluate while the others wait. Long waits are told, ever less often.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from ringleader.engine.communicator import LOOKS, NAP_SHARE, RequestSleep, World, nap_seconds
from ringleader.engine.engine_settings import EngineSettings
from ringleader.engine.exceptions import HorovodInternalError, known_to_peers
from ringleader.engine.liveness import End, LivenessSource, PeerEnd
from ringleader.engine.negotiation import numbered

LOOK_SECONDS = 0.02
"""How often a long wait looks for ended peers."""
GRACE_SECONDS = 1.0
"""After a peer ended, a wait that cannot tell whom it waits for gets this long to be done after all."""


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

        ``why_broken`` says why none of the ranks can go on, empty as long as they can: in an elastic job the
        end of one is the end of the generation. ``sleep``: where something wakes this rank when requests are
        done, as MPI proxies do.
        """
        self._rank = rank
        self._liveness_sources = liveness_sources
        self._warn_seconds = warn_seconds
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._say = say
        self.why_broken = why_broken
        """Says why none of the ranks can go on."""
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
