"""The order in which this process launches work on its devices: the same on every rank that shares it.

A collective on a device is launched and not waited for, and it holds the device until all its ranks have
launched it. Two ranks that launch two of them in different orders may each hold the other's device for
ever. Within one group of ranks the engine has one order. Groups (process sets) have their own engines, in
threads of their own, so each operation gets a place in one order of all groups:

- When all ranks of a group have come to an operation, each proposes a number that is larger than all it has
  seen. The largest of them, with the group's number, is the operation's place.
- A rank launches an operation when nothing that it knows of may get a smaller place. That wait is short: the
  ranks that are to tell their numbers are all in the middle of doing so.

Gradients of a step are launched as a *sequence*, while backward continues, in an order that is known; what
comes between would be between other buckets on each rank. So a sequence stands alone: it is refused where a
rank has something else on its way, and what comes meanwhile goes past the devices, through the host. A
script that does that again and again gets no sequences any more.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

MOST_INTERRUPTIONS = 3
"""This many operations may come during sequences; then sequences cost more than they spare."""


@dataclass(eq=False, kw_only=True)
class Launch:
    """Something that a group of ranks is about to launch on devices."""

    group: int
    """Number of the process set, 0 for all ranks."""
    sequence: bool
    """Whether it is a sequence, which lasts."""
    stamp: int
    """The least place that it can get, and its place once that is `settled`."""
    alone: bool
    """Whether this rank had nothing on its way that it may not go beside."""
    settled: bool = False
    """Whether the ranks have told each other their numbers."""

    @property
    def place(self) -> tuple[int, int]:
        """Return its place, or a lower bound of it."""
        return self.stamp, self.group

    @property
    def message(self) -> int:
        """Return what is sent to the other ranks of the group."""
        return 2 * self.stamp + self.alone


class LaunchOrder:
    """What this process is about to launch, in all groups. Used by several threads."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._newest = 0
        self._interruptions = 0
        self._pending: list[Launch] = []

    def propose(self, group: int, *, sequence: bool = False, willing: bool = True) -> Launch:
        """Begin to launch something that all ranks of the group have come to.

        ``willing``: whether this rank wants a sequence. Ends with `finish`.
        """
        with self._lock:
            self._newest += 1
            if sequence:
                alone = willing and not self._pending and self._interruptions < MOST_INTERRUPTIONS
            else:
                alone = not any(one.sequence for one in self._pending)
            launch = Launch(group=group, sequence=sequence, stamp=self._newest, alone=alone)
            self._pending.append(launch)
            return launch

    def settle(self, launch: Launch, messages: Sequence[int]) -> bool:
        """Take what all ranks of the group have told; return whether it may be launched on the devices.

        Equal on all of them. A sequence that may not is given up; anything else goes through the host.
        """
        with self._lock:
            launch.stamp = max(message >> 1 for message in messages)
            launch.settled = True
            self._newest = max(self._newest, launch.stamp)
            granted = all(message & 1 for message in messages)
            if not granted:
                self._pending.remove(launch)
                self._interruptions += not launch.sequence
            return granted

    @property
    def gives_up(self) -> bool:
        """Return whether the newest interruption was the one after which there are no sequences any more."""
        return self._interruptions == MOST_INTERRUPTIONS

    def is_next(self, launch: Launch) -> bool:
        """Return whether everything with a smaller place has been launched."""
        with self._lock:
            return all(one.place >= launch.place for one in self._pending)

    def finish(self, launch: Launch) -> None:
        """Note that it has been launched, or given up."""
        with self._lock:
            if launch in self._pending:
                self._pending.remove(launch)
