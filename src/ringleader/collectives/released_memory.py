"""Shared memory that a rank needs no more: it goes when all ranks say so and no array is left over it."""

from __future__ import annotations

from collections.abc import Sequence

from ringleader.collectives.shared_memory import Segment
from ringleader.collectives.transports.transport import Region, Transport


class ReleasedMemory:
    """What this rank has released. The ranks tell each other with the next operation after a release."""

    def __init__(self, transport: Transport) -> None:
        """Begin with nothing released of the transport's memory."""
        self._registered = transport.registered
        self._segments: dict[int, Segment] = {}
        self.to_tell = False
        """Whether the other ranks are to hear of something."""

    def add(self, region: Region) -> None:
        """Release a region; may be called at any time, also by a finaliser in the middle of anything else."""
        if self._registered is not None and region.segment is not None:
            self._segments[region.segment.number] = region.segment
            self.to_tell = True

    def look_again(self) -> None:
        """Tell once more of what arrays still looked at when it was told: it may be free by now."""
        self.to_tell = bool(self._segments)

    def unused(self) -> tuple[int, ...]:
        """Return the segments that this rank needs no more, to be told the others now."""
        self.to_tell = False
        if self._registered is None:
            return ()
        return tuple(self._registered.unused(list(self._segments.copy().values())))

    def give_back(self, numbers: Sequence[int]) -> None:
        """Free segments that no rank needs. Collective."""
        for number in numbers:
            segment = self._segments.pop(number)
            if self._registered is not None:
                self._registered.give_back(segment)
