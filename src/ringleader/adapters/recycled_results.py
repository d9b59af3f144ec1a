"""Memory of results that were dropped, used again; `torch.recycled_storages` has that of tensors.

A new result of some MiB costs more than its reduction where the kernel hands out its memory page by page. So
what a result was made in is kept here, and the next result of as many bytes is made in it, if the script has
dropped the first one: the result itself, views, and whatever NumPy, DLPack or autograd made of it. All of
these hold the object that owns the memory, the *owner*, and Python counts its references. An owner with any
reference but ours is left alone, so a script that keeps its results gets new memory for each, as before.
"""

from __future__ import annotations

import ctypes
import os
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from sys import getrefcount
from typing import Any

import numpy

from ringleader.adapters.numpy_adapter import ALIGNMENT, Array, aligned_in
from ringleader.engine.process_lifecycle import PROCESS

LEAST_BYTES = 256 << 10
"""Results from this size on are made in recycled memory: malloc reuses shorter ones at no cost."""
MOST_SIZES = 32
"""Sizes in use: memory of the one that was asked for longest ago is given back."""
CHECK_SECONDS = 1.0
"""The least time between two looks at what memory is left."""

_Slots = deque[tuple[Any, Any]]
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # the GNU C library's


def is_recycled(nbytes: int) -> bool:
    """Return whether results of this size are made in recycled memory in this session."""
    return nbytes >= LEAST_BYTES and PROCESS.get().settings.recycled_results > 0


class ResultMemory(ABC):
    """What results of one kind of array are made in. Any thread may use it."""

    def __init__(self) -> None:
        """Begin with none. A forked child, and `shutdown`, begin anew."""
        self._slots: dict[int, _Slots] = {}
        self._checked = 0.0
        self._pressed = False
        os.register_at_fork(after_in_child=self.clear)

    @abstractmethod
    def new(self, nbytes: int) -> Any:
        """Return a new owner of so much memory."""

    @abstractmethod
    def place(self, owner: Any) -> Any:
        """Return where an owner's memory lies: one whose memory was exchanged or resized is dropped."""

    def is_used(self, owner: Any) -> bool:
        """Return whether anything that Python does not count uses the memory."""
        return False

    def take(self, nbytes: int) -> Any:
        """Return an owner that nothing else refers to, to be used at once."""
        if time.monotonic() - self._checked > CHECK_SECONDS:
            self._check(nbytes)
        slots = self._slots.pop(nbytes, None)
        if slots is None:
            slots = self._open()
        self._slots[nbytes] = slots  # the last one, as it was used last
        for _ in range(len(slots)):
            try:
                # What was taken out has one reference more, so that no other thread takes it as well.
                owner, place = slots.pop()
            except IndexError:
                break
            # What nobody else knows, from here on, as a debugger may hold all that this function has: what is
            # counted of it is what is counted of an owner that is free.
            alone = object()
            # Twice, as another thread may turn its reference into a weak one or a use in C++, or the reverse.
            is_free = (
                not self.is_used(owner)  # what rules most out
                and getrefcount(owner) == getrefcount(alone)
                and not weakref.getweakrefcount(owner)
                and not self.is_used(owner)
                and getrefcount(owner) == getrefcount(alone)
            )
            # What was used last is looked at first: the cache has it, if anything.
            if not is_free:
                slots.appendleft((owner, place))
            elif self.place(owner) == place:
                slots.append((owner, place))
                return owner
        try:
            owner = self.new(nbytes)
        except (MemoryError, RuntimeError):  # the latter is PyTorch's
            self.clear()
            owner = self.new(nbytes)
        if not self._pressed:
            slots.append((owner, self.place(owner)))
        return owner

    def _open(self) -> _Slots:
        """Begin with a size; `shutdown` of this session gives its memory back."""
        session = PROCESS.get()
        session.at_shutdown.add(self.clear)
        session.short_of_memory.add(self.give_back)
        for longest_ago in list(self._slots)[: 1 - MOST_SIZES]:
            self._slots.pop(longest_ago, None)
        return deque(maxlen=session.settings.recycled_results)

    def _check(self, nbytes: int) -> None:
        """Give everything back where there is less left than is kept here, and keep nothing meanwhile."""
        # Read by jobs with such results alone.
        from ringleader.agents.elastic.commit_memory import memory_left

        self._checked, left = time.monotonic(), memory_left()
        self._pressed = left is not None and left < self.nbytes + nbytes
        if self._pressed:
            self.give_back()

    @property
    def nbytes(self) -> int:
        """Return how much memory is kept, that of results which a script still has included."""
        return sum(nbytes * len(slots) for nbytes, slots in list(self._slots.items()))

    def clear(self) -> None:
        """Give back what no result is in, and forget the rest."""
        self._slots = {}

    def give_back(self) -> None:
        """Do that, and have malloc return to the host what it keeps for the next allocation."""
        self.clear()
        if _trim is not None:
            _trim(0)


class ArrayMemory(ResultMemory):
    """Memory of NumPy's arrays: the owner is the array at the base of each of them."""

    def new(self, nbytes: int) -> Array:
        """Return bytes with room for alignment. NumPy asks for huge pages for those of 4 MiB and more."""
        return numpy.empty(nbytes + ALIGNMENT, numpy.uint8)

    def place(self, owner: Array) -> tuple[int, int, bool]:
        """Return its length and type, which a script can set, and whether it may still be written to."""
        return owner.size, owner.dtype.num, owner.flags.writeable


ARRAYS = ArrayMemory()


def result_like(array: Array) -> Array:
    """Return an array of the same shape and type for a result, aligned to `ALIGNMENT` bytes."""
    nbytes = array.nbytes
    memory = ARRAYS.take(nbytes) if is_recycled(nbytes) else ARRAYS.new(nbytes)
    return aligned_in(memory, array.shape, array.dtype)
