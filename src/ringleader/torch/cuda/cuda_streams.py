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
    produced: Any
    """Event after which the input is there."""
    finished: Any = None
    """Event after which the result is there, once the operation is on the communication stream."""


class CudaStreams:
    """The streams of the GPUs of this process, as operations use them."""

    def __init__(self, cuda: Any = torch.cuda) -> None:
        """Take PyTorch's module for GPUs."""
        self._cuda = cuda
        self._streams: dict[torch.device, Any] = {}

    def submitted(self, work: Work, device: torch.device) -> None:
        """Note the calling thread's place in the order of its stream."""
        work.stream_events = StreamEvents(
            device=device, produced=self._cuda.current_stream(device).record_event()
        )

    @contextmanager
    def ordered(self, work: Work) -> Iterator[None]:
        """Within it the communication stream is the current one, between the work's input and its result."""
        stream_events: StreamEvents | None = work.stream_events
        if stream_events is None:
            # No script here submitted it: a rank that has joined takes part with zeros.
            yield
            return
        stream = self._stream(stream_events.device)
        stream.wait_event(stream_events.produced)
        with self._cuda.stream(stream):
            yield
        stream_events.finished = stream.record_event()
        # The memory may be given back by the script before that stream has got to it.
        _keep(tensors_of(work), stream)

    def delivered(self, work: Work) -> None:
        """Have the calling thread's stream wait for the result."""
        stream_events: StreamEvents | None = work.stream_events
        if stream_events is not None and stream_events.finished is not None:
            stream = self._cuda.current_stream(stream_events.device)
            stream.wait_event(stream_events.finished)
            _keep(tensors_of(work), stream)

    def _stream(self, device: torch.device) -> Any:
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = self._cuda.Stream(device)
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
