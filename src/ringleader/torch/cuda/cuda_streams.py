"""The order of work on a GPU: operations come after what they read, and before what reads them.

A GPU works through *streams*, each in its own order; *events* order one stream after another. The host waits
for none of it. Operations have their own stream, the communication stream, so that what a script puts on
its stream after submitting one (the rest of backward) does not wait for it, whichever thread of the engine
carries it out. An operation comes after an event that was recorded on the script's stream when it was
submitted, and before an event that the script's stream waits for when the script has waited for it.

The current device is a thread's own, GPU 0 in a new one, and whoever leaves `torch.cuda.stream` there makes
GPU 0 current again, which makes a context on it: some 0.5 GB. So here a device is made current before a
stream; leaving `torch.cuda.device` makes no context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ringleader.engine.operations import Work


@dataclass(kw_only=True)
class StreamEvents:
    """Where in the order of a GPU one operation stands."""

    device: torch.device
    """The GPU of the work's tensors."""
    produced: tuple[Any, ...]
    """Events after which the input is there."""
    finished: Any = None
    """Event after which the result is there, once the operation is on the communication stream."""


class CudaStreams:
    """The streams of the GPUs of this process, as operations use them."""

    def __init__(
        self,
        cuda: Any = torch.cuda,
        record: Callable[[torch.Tensor, Any], object] = lambda tensor, stream: (
            tensor.record_stream(stream) if tensor.is_cuda else None
        ),
    ) -> None:
        """Take PyTorch's module for GPUs, and what keeps a tensor's memory until a stream has passed."""
        self._cuda = cuda
        self._record = record
        self._streams: dict[tuple[torch.device, bool], Any] = {}
        self._writers: dict[int, dict[Any, None]] = {}

    def capturing(self) -> bool:
        """Return whether the calling thread's stream only records a graph."""
        return bool(self._cuda.is_current_stream_capturing())

    def written(self, work: Work, device: torch.device) -> None:
        """Note that the calling thread's stream writes a part of the work's input.

        Backward works on the streams of forward, so the gradients of one bucket may come from several.
        """
        self._writers.setdefault(id(work), {})[self._cuda.current_stream(device)] = None

    def submitted(self, work: Work, device: torch.device) -> None:
        """Note the calling thread's place in the order of its stream, and of others that wrote the input."""
        streams = {**self._writers.pop(id(work), {}), self._cuda.current_stream(device): None}
        work.stream_events = StreamEvents(
            device=device, produced=tuple(stream.record_event() for stream in streams)
        )

    @contextmanager
    def ordered(
        self, *works: Work, carrier: torch.device | None = None, aside: bool = False
    ) -> Iterator[None]:
        """Within it communication streams are current, between the works' inputs and their results.

        One for each device of the works, and one for that of ``carrier``, whose tensors are exchanged: copies
        between devices order them. ``aside``: second ones instead, for what must not wait behind the first.
        Works of no device are those that no script here submitted, as where a rank that has joined takes
        part with zeros.
        """
        placed: list[StreamEvents] = [work.stream_events for work in works if work.stream_events is not None]
        devices = dict.fromkeys(events.device for events in placed)
        last = carrier or next(reversed(devices), None)
        if last is None:
            yield
            return
        devices.pop(last, None)
        streams = {device: self._stream(device, aside) for device in (*devices, last)}
        for events in placed:
            for event in events.produced:
                streams[events.device].wait_event(event)
        with ExitStack() as current:
            for device, stream in streams.items():
                current.enter_context(self._cuda.device(device))
                current.enter_context(self._cuda.stream(stream))
            yield
        finished = {device: streams[device].record_event() for device in {events.device for events in placed}}
        for work in works:
            if work.stream_events is not None:
                device = work.stream_events.device
                work.stream_events.finished = finished[device]
                # The memory may be given back by the script before that stream has got to it.
                self._keep(work, streams[device])

    def delivered(self, work: Work) -> None:
        """Have the calling thread's stream wait for the result."""
        stream_events: StreamEvents | None = work.stream_events
        if stream_events is not None and stream_events.finished is not None:
            stream = self._cuda.current_stream(stream_events.device)
            stream.wait_event(stream_events.finished)
            self._keep(work, stream)

    def _keep(self, work: Work, stream: Any) -> None:
        for tensor in tensors_of(work):
            self._record(tensor, stream)

    def _stream(self, device: torch.device, aside: bool) -> Any:
        stream = self._streams.get((device, aside))
        if stream is None:
            stream = self._streams[device, aside] = self._cuda.Stream(device)
        return stream


def tensors_of(work: Work) -> list[torch.Tensor]:
    """Return the tensors that an operation reads and writes."""
    found = work.array.mine if work.signature.kind == "gradients" else work.array
    out = None if work.signature.kind == "gradients" else work.out
    return [tensor for tensor in (found, out) if isinstance(tensor, torch.Tensor)]
