"""Moments of a training step: the host's clock, or events of a GPU's stream, where kernels end later."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch


class StepClock(Protocol):
    """Takes moments, and tells the time between two once all of them have passed."""

    def mark(self) -> Any:
        """Take this moment."""
        ...

    def settle(self) -> None:
        """Wait until every moment has passed."""
        ...

    def seconds(self, first: Any, second: Any) -> float:
        """Return the time from one moment to a later one."""
        ...


class HostClock:
    """The host computes: a moment is now."""

    def mark(self) -> float:
        """See `StepClock`."""
        return time.perf_counter()

    def settle(self) -> None:
        """See `StepClock`."""

    def seconds(self, first: float, second: float) -> float:
        """See `StepClock`."""
        return second - first


class CudaClock:
    """A GPU computes: a moment is when its stream gets there. Nothing is synchronised within a step."""

    def __init__(self, device: torch.device) -> None:
        """Take moments of the current stream of a device."""
        self._device = device

    def mark(self) -> Any:
        """See `StepClock`."""
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def settle(self) -> None:
        """See `StepClock`."""
        torch.cuda.synchronize(self._device)

    def seconds(self, first: Any, second: Any) -> float:
        """See `StepClock`."""
        return float(first.elapsed_time(second)) / 1e3


def clock_of(device: torch.device) -> StepClock:
    """Return the clock of a device."""
    return CudaClock(device) if device.type == "cuda" else HostClock()
