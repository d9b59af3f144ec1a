"""Which operations of a session go to the other ranks together. Pure.

A session's executor hands over one tensor at a time, in its own order on every rank. Ranks meet cheaply
when they bring the same operations, so those that come in every step are kept back until all of a bucket are
there. What is in a bucket is learned:

- An operation never seen before goes when nothing more has come for `STRANGER_SECONDS`.
- What came between two arrivals of one name is a cycle, as a training's step is; after the first, all of it
  is one bucket.
- In the third cycle rank 0 tells its order to all (`BucketPlanner.agreement_due`), which then cut their
  buckets alike, by bytes in the order in which rank 0's backward brings them: the exchange of one continues
  while backward computes the next.

A bucket that is not completed in time goes as it is, so that a wrong guess costs one silence and is never an
error; after `MISSES` of them the bucket is split where it broke.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

STRANGER_SECONDS = 0.005
"""An operation that is in no bucket waits this long after the last arrival."""
SHORTEST_PATIENCE = 0.05
"""A bucket waits at least this long after the last arrival for what is missing."""
LONGEST_PATIENCE = 1.0
"""And at most this long."""
GAPS = 4.0
"""Between these limits: so many times the longest pause that there was within it."""
MISSES = 2.0
"""A bucket that was not completed this often is split."""
FORGIVEN = 0.25
"""So much of a miss is made good by a round in time."""
BUCKET_BYTES = 8 << 20
"""Size of the buckets of an agreed order. A larger tensor is one by itself."""


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where an operation is in rank 0's order."""

    cycle: int
    """Number of the cycle, from 1; 0: rank 0 had nothing to tell. Operations of one cycle belong together."""
    index: int
    """How many came before it in the cycle."""
    nbytes: int
    """Bytes of its input."""


@dataclass(kw_only=True, eq=False)
class _Bucket:
    names: tuple[str, ...]
    group: list[_Bucket]
    """The buckets of its cycle, in order."""
    missing: set[str] = field(default_factory=set)
    """Names that have not come in this round."""
    rounds: int = 0
    """How often it was sent."""
    misses: float = 0.0
    """How often it was not completed in time, or came out of turn."""
    gap: float = 0.0
    """Longest pause between two arrivals in the last round."""
    pause: float = 0.0
    """The same in this round."""
    since: float = 0.0
    """The first arrival of this round."""
    newest: float = 0.0
    """The latest one."""

    def in_turn(self) -> bool:
        """Return whether all buckets before it in its cycle have gone once more than it."""
        for other in self.group:
            if other is self:
                return True
            if other.rounds <= self.rounds:
                return False
        return True

    @property
    def patience(self) -> float:
        return min(max(GAPS * self.gap, SHORTEST_PATIENCE), LONGEST_PATIENCE)


class BucketPlanner:
    """Decides which of the operations that have arrived are sent now. Times are seconds on any one clock."""

    def __init__(self, *, alone: bool = False, cap_bytes: int = BUCKET_BYTES) -> None:
        """``alone``: there is no other rank, so nothing waits."""
        self._alone = alone
        self._cap_bytes = cap_bytes
        self._waiting: dict[str, None] = {}
        """Names that have arrived and not gone, in the order of arrival."""
        self._newest = 0.0
        """The latest arrival."""
        self._strangers = 0
        """How many that wait are in no bucket."""
        self._ripe: dict[int, list[_Bucket]] = {}
        """Cycles of which a bucket was completed since the last look."""
        self._cycle: set[str] = set()
        """Names of the cycle that continues."""
        self.cycle_number = 1
        """It grows with every cycle, as with a training's steps."""
        self._bucket_of: dict[str, _Bucket] = {}
        self._seen: dict[str, Position] = {}
        """Cycle, place in it and bytes of each name's last arrival."""
        self._times: dict[str, float] = {}
        """When that was."""
        self._told: dict[int, dict[str, Position]] = {}
        """Positions that are not in buckets yet, by cycle."""
        self._sent: dict[str, int] = {}
        """How often each name was sent."""

    def arrived(self, name: str, nbytes: int, now: float) -> bool:
        """Note that an operation is there; return whether `due` is to be asked now, and not only later.

        A name that waits already waits on.
        """
        if name in self._cycle:
            self._close_cycle()
        self._seen[name] = Position(cycle=self.cycle_number, index=len(self._cycle), nbytes=nbytes)
        self._times[name] = self._newest = now
        self._cycle.add(name)
        if name in self._waiting:
            return False
        self._waiting[name] = None
        bucket = self._bucket_of.get(name)
        if bucket is None:
            self._strangers += 1
            return self._alone
        if name not in bucket.missing:
            # The next round has begun, and what was missing in the last one did not come.
            bucket.missing = set(bucket.names)
            bucket.rounds += 1
        if len(bucket.missing) == len(bucket.names):
            bucket.since, bucket.pause = now, 0.0
        else:
            bucket.pause = max(bucket.pause, now - bucket.newest)
        bucket.newest = now
        bucket.missing.discard(name)
        if not bucket.missing:
            self._ripe[id(bucket.group)] = bucket.group
        return not bucket.missing

    def due(self, now: float) -> list[list[str]]:
        """Return what is to be sent now, in this order; each list at once. It waits no more."""
        batches: list[list[str]] = []
        if self._alone:
            batches.append(self._taken(list(self._waiting)))
        else:
            for group in self._ripe.values():
                for bucket in group:
                    if self._can_go(bucket):
                        batches.append(self._taken(self._complete(bucket)))
            self._ripe.clear()
            if now >= (self.next_look() or now + 1.0):
                late = [name for name in self._waiting if now >= self._deadline(name)]
                batches.append(self._taken(self._late(late)))
        return [batch for batch in batches if batch]

    def _taken(self, batch: list[str]) -> list[str]:
        for name in batch:
            del self._waiting[name]
            self._strangers -= name not in self._bucket_of
        return batch

    def next_look(self) -> float | None:
        """Return when `due` has something to send although nothing more arrives; None where nothing waits."""
        if self._strangers:
            return self._newest + STRANGER_SECONDS
        return min(map(self._deadline, self._waiting), default=None)

    def agreement_due(self, name: str) -> Position | None:
        """Count that an operation was sent; return its position if that goes to the ranks with it.

        Ranks count alike, as they did the operation as often. It is the 3rd, 30th, 300th time and so on: the
        first cycle is like no later one, and what a training does may change.
        """
        sent = self._sent[name] = self._sent.get(name, 0) + 1
        while sent % 10 == 0:
            sent //= 10
        if sent != 3 or self._alone:
            return None
        return self._seen[name]

    def agree(self, name: str, position: Position) -> None:
        """Take over the position that rank 0 told; it counts from the next cycle on."""
        if position.cycle:
            self._told.setdefault(position.cycle, {})[name] = position

    def _close_cycle(self) -> None:
        strangers = [name for name in self._cycle if name not in self._bucket_of]
        if strangers:
            self._make_group([sorted(strangers, key=lambda name: self._seen[name].index)])
        self._cycle.clear()
        self.cycle_number += 1
        for positions in self._told.values():
            in_order = sorted(positions.items(), key=lambda item: (item[1].index, item[0]))
            self._make_group(cut([(name, one.nbytes) for name, one in in_order], self._cap_bytes))
        self._told.clear()

    def _make_group(self, pieces: Iterable[Sequence[str]]) -> None:
        """Make buckets that follow each other in every cycle; what waits already counts for this round."""
        group: list[_Bucket] = []
        for piece in pieces:
            for name in piece:
                self._leave(name)
            bucket = _Bucket(names=tuple(piece), group=group)
            bucket.missing = {name for name in piece if name not in self._waiting}
            times = sorted(self._times[name] for name in piece if name in self._times)
            bucket.gap = max((later - one for one, later in pairwise(times)), default=0.0)
            bucket.since = bucket.newest = self._newest
            group.append(bucket)
            self._bucket_of.update(dict.fromkeys(piece, bucket))
            if not bucket.missing:
                self._ripe[id(group)] = group

    def _leave(self, name: str) -> None:
        """Take a name out of the bucket that it is in."""
        old = self._bucket_of.pop(name, None)
        if old is None:
            self._strangers -= name in self._waiting
            return
        old.names = tuple(other for other in old.names if other != name)
        old.missing.discard(name)
        if not old.names:
            old.group.remove(old)
        elif not old.missing:
            self._ripe[id(old.group)] = old.group

    def _can_go(self, bucket: _Bucket) -> bool:
        here = not bucket.missing and any(name in self._waiting for name in bucket.names)
        return here and bucket.in_turn()

    def _complete(self, bucket: _Bucket) -> list[str]:
        """Begin the next round of a bucket that goes; return what goes."""
        bucket.gap, bucket.misses = bucket.pause, max(bucket.misses - FORGIVEN, 0.0)
        bucket.missing = set(bucket.names)
        bucket.rounds += 1
        return [name for name in bucket.names if name in self._waiting]

    def _deadline(self, name: str) -> float:
        bucket = self._bucket_of.get(name)
        if bucket is None:
            return self._newest + STRANGER_SECONDS
        # What arrives for others keeps a bucket waiting, but not for ever.
        return min(self._newest + bucket.patience, bucket.since + GAPS * LONGEST_PATIENCE)

    def _late(self, late: list[str]) -> list[str]:
        """Return what goes with names that have waited too long, and learn from it."""
        batch = [name for name in late if name not in self._bucket_of]
        for bucket in dict.fromkeys(self._bucket_of[name] for name in late if name in self._bucket_of):
            here = [name for name in bucket.names if name in self._waiting]
            batch += here
            bucket.misses += 1.0
            bucket.gap = max(bucket.gap, bucket.pause)
            if not bucket.missing:
                bucket.missing = set(bucket.names)
                bucket.rounds += 1
            if bucket.misses >= MISSES:
                for part in (here, [name for name in bucket.names if name not in here]):
                    if part:
                        self._make_group([part])
                        self._bucket_of[part[0]].missing = set(part)
        self._ripe.clear()
        return batch


def cut(sizes: Iterable[tuple[str, int]], cap_bytes: int) -> list[list[str]]:
    """Cut names with sizes into pieces of at most ``cap_bytes``, a larger one by itself, in their order."""
    pieces: list[list[str]] = []
    used = 0
    for name, nbytes in sizes:
        if not pieces or used + nbytes > cap_bytes:
            pieces.append([])
            used = 0
        pieces[-1].append(name)
        used += nbytes
    return pieces
