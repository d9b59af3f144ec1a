"""The order of work on a GPU: operations come after what they read, and before what reads them.

A GPU works through *streams*, each in its own order; *events* order one stream after another. The host waits
for none of it. Operations have a stream of their own, the communication stream, so that what a script puts on
its stream after submitting one (the rest of backward) does not wait for it, whichever thread of the engine
carries it out. An operation comes after an event that was recorded on the script's stream when it was
submitted, and before an event that the script's stream waits for when the script has waited for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ringleader.collectives.operations import Work


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

    def __init__(self, cuda: Any = torch.cuda) -> None:
        """Take PyTorch's module for GPUs."""
        self._cuda = cuda
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
    def ordered(self, *works: Work, aside: bool = False) -> Iterator[None]:
        """Within it the communication stream is the current one, between the works' inputs and their results.

        ``aside``: a second one instead, for what must not wait behind the first. All works are of one device,
        or of none: then no script here submitted them, as where a rank that has joined takes part with zeros.
        """
        placed: list[StreamEvents] = [work.stream_events for work in works if work.stream_events is not None]
        if not placed:
            yield
            return
        stream = self._stream(placed[0].device, aside)
        for events in placed:
            for event in events.produced:
                stream.wait_event(event)
        with self._cuda.stream(stream):
            yield
        finished = stream.record_event()
        for work in works:
            if work.stream_events is not None:
                work.stream_events.finished = finished
                # The memory may be given back by the script before that stream has got to it.
                _keep(tensors_of(work), stream)

    def delivered(self, work: Work) -> None:
        """Have the calling thread's stream wait for the result."""
        stream_events: StreamEvents | None = work.stream_events
        if stream_events is not None and stream_events.finished is not None:
            stream = self._cuda.current_stream(stream_events.device)
            stream.wait_event(stream_events.finished)
            _keep(tensors_of(work), stream)

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


def _keep(tensors: Sequence[torch.Tensor], stream: Any) -> None:
    for tensor in tensors:
        if tensor.is_cuda:
            tensor.record_stream(stream)
