"""Ranks that wait for each other for ever, each in another group.

A group's own negotiation sees a mismatch only when all its members are there. Where every rank of the job
waits, and each for a rank that waits in another group, no group has all of them. So a rank that has stood
still for longer than the patience answers the questions of rank 0, which asks as long as it stands still
itself. Nobody else answers: a rank that computes keeps every other one free of a verdict.

Rank 0 asks twice. Who answers both times with the same state stood still when the second question was sent,
so there was a moment at which all ranks did. What each of them waits for then has not been asked for by
another rank, which stands still too: it is not going to be.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ringleader.engine.communicator import Communicator, Mailbox
from ringleader.engine.negotiation import numbered

QUESTION, ANSWER, VERDICT = 78, 79, 80
"""Tags of the messages."""
PAUSE_SECONDS = 0.2
"""Between two questions; also how long a rank with the verdict leaves it to the others to read theirs, before
they are notified that this one has given up."""


@dataclass(frozen=True, kw_only=True)
class GroupWait:
    """Where a rank stands still, and what it has asked for elsewhere."""

    group: int
    """Number of the process set, 0 for all ranks."""
    since: float
    """Since when, by the rank's own clock: tells one wait from another."""
    words: str
    """The operation."""
    groups: Mapping[int, tuple[int, bool]]
    """By number, of each group that the rank is in: how many of its meetings the rank has come to, and
    whether it has anything pending there, so that it may come to another one."""

    def encode(self) -> bytes:
        """Return it as it is sent to rank 0."""
        return json.dumps(vars(self)).encode()

    @classmethod
    def decode(cls, message: bytes) -> GroupWait:
        """Return what `encode` made."""
        fields = json.loads(message)
        groups = {int(number): tuple(came) for number, came in fields.pop("groups").items()}
        return cls(**fields, groups=groups)


def deadlock_across_groups(waits: Sequence[GroupWait], sets: Mapping[int, Sequence[int]]) -> str:
    """Return who waits for whom where no rank can continue; empty where one can, or that is unknown.

    ``waits`` are those of all ranks at one moment, in rank order; ``sets`` the ranks of each group. A rank
    waits in vain if a member of its group has not come to this meeting and has nothing pending there: that
    member stands still in another group, so it is not going to.
    """
    said: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for rank, wait in enumerate(waits):
        meeting = wait.groups[wait.group][0]
        absent = []
        for member in sets.get(wait.group, ()):
            met, busy = waits[member].groups.get(wait.group, (meeting, True))
            if met < meeting and not busy:
                absent.append(member)
        if not absent:
            return ""
        said.setdefault((wait.words, tuple(absent)), []).append(rank)
    return "Mismatched operations across process sets, and every rank waits: " + "; ".join(
        f"{numbered(ranks)} in {words} for {numbered(absent)}" for (words, absent), ranks in said.items()
    )


class DeadlockCheck:
    """What the ranks of a job tell each other of waits that do not end."""

    def __init__(
        self, control: Communicator, *, patience: float, sets: Callable[[], Mapping[int, Sequence[int]]]
    ) -> None:
        """Use the communicator of all ranks; ``sets`` returns the ranks of each group by number."""
        self.patience = patience
        """A wait is reported when it has lasted for this many seconds."""
        self._control, self._sets = control, sets
        self._mailbox, self._looking = Mailbox(control), threading.Lock()
        self._awaited: set[int] = set()
        self._answers: dict[int, bytes] = {}
        self._before: dict[int, bytes] = {}
        self._ask_at = 0.0

    def look(self, wait: GroupWait) -> str:
        """Take part for a rank that stands still in ``wait``; return why it waits in vain, empty if unknown.

        Called again and again while the wait lasts; does not wait for anybody.
        """
        if self._control.size == 1 or not self._looking.acquire(blocking=False):
            return ""
        try:
            self._mailbox.sent()
            state = wait.encode()
            words = self._ask(state) if self._control.rank == 0 else self._answer(state, wait.since)
            if words:
                time.sleep(PAUSE_SECONDS)
            return words
        finally:
            self._looking.release()

    def _ask(self, state: bytes) -> str:
        others = range(1, self._control.size)
        for rank, answer in self._mailbox.received(ANSWER):
            self._answers[rank] = answer
            self._awaited.discard(rank)
        if self._awaited:
            return ""
        answers, before, self._answers = self._answers, self._before, {}
        if answers:
            # What this rank did when it asked counts as its answer, and it is to stand there still.
            self._before = answers if answers[0] == state else {}
            if self._before and answers == before:
                waits = [GroupWait.decode(answers[rank]) for rank in sorted(answers)]
                words = deadlock_across_groups(waits, self._sets())
                if words:
                    for rank, wait in zip(others, waits[1:], strict=True):
                        self._mailbox.send(json.dumps([wait.since, words]).encode(), rank, VERDICT)
                    return words
            self._ask_at = time.monotonic() + PAUSE_SECONDS
        if time.monotonic() < self._ask_at:
            self._answers = {}
            return ""
        # One question is with each rank at most, however long it does not look.
        self._answers, self._awaited = {0: state}, set(others)
        for rank in others:
            self._mailbox.send(b"?", rank, QUESTION)
        return ""

    def _answer(self, state: bytes, since: float) -> str:
        for _ in self._mailbox.received(QUESTION, 0):
            self._mailbox.send(state, 0, ANSWER)
        for _, message in self._mailbox.received(VERDICT, 0):
            meant, words = json.loads(message)
            if meant == since:
                return str(words)
        return ""

    def drain(self) -> None:
        """Take what nobody read, before the communicator goes."""
        for tag in (QUESTION, ANSWER, VERDICT):
            list(self._mailbox.received(tag))


def script_stands_still(waiting_threads: Sequence[int]) -> bool:
    """Return whether the script waits, and has no other thread that could ask for something meanwhile.

    Called by the thread that waits, for the operations that the threads of these numbers wait for. Daemon
    threads do not count: they serve the framework.
    """
    main = threading.main_thread()
    if any(thread is not main and not thread.daemon for thread in threading.enumerate()):
        return False
    return threading.current_thread() is main or main.ident in waiting_threads
