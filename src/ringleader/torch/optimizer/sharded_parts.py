"""One bucket of which every rank owns a part: it gets the gradients of that part, and gives the parameters.

In memory that the ranks of one host share, owners read gradients and write parameters where they lie; so
they do on several hosts, with an exchange between these. Anywhere else all are exchanged: a reduce-scatter,
and an allgather.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ringleader.collectives.engine import Engine
from ringleader.collectives.operations import Signature, Work, signature_digest
from ringleader.collectives.transports.reduce_scatter import row_counts, starts_of
from ringleader.collectives.transports.transport import Region
from ringleader.torch.kernels import dtype_name
from ringleader.torch.optimizer.bucket_memory import GradientBucket

ROW = 32
"""Elements to which the ends of parts are rounded; every bucket is a multiple of it long."""


def part_of(count: int, *, rank: int, size: int) -> tuple[int, int]:
    """Return the elements of ``count`` that a rank owns."""
    edges = starts_of(row_counts(count // ROW, size))
    return edges[rank] * ROW, edges[rank + 1] * ROW


class BucketParts:
    """A bucket's gradients and parameters. What is done here is done by all ranks."""

    in_window = False
    """Whether ranks write into each other's memory, so that they must meet before and after `publish`."""

    def __init__(self, engine: Engine, bucket: GradientBucket, parameters: Region, name: str) -> None:
        """Take memory that is laid out alike on all ranks."""
        self._engine, self._bucket, self._parameters, self._name = engine, bucket, parameters, name
        self.span = part_of(bucket.region.count, rank=engine.ranks.rank, size=engine.ranks.size)
        """The elements that this rank owns."""
        start, stop = self.span
        self.gradients: torch.Tensor = bucket.values
        """Gradients of the bucket, 1-D."""
        self.parameters: torch.Tensor = parameters.mine
        """Parameters of the bucket, 1-D."""
        self._work, self._requesting = self._works(start, stop)

    def _works(self, start: int, stop: int) -> tuple[Work, Work]:
        memory = self._bucket.region.mine
        signature = replace(
            self._bucket.work.signature,
            kind="reducescatter",
            shape=(memory.numel() // ROW, ROW),
            prescale=1.0,  # that was done when the gradients were laid out
        )
        return _pair(signature, self._name, memory.view(-1, ROW))

    def reduce(self, *, requesting: bool) -> None:
        """Have the reduced gradients in this rank's part; what lies in the other parts is undefined."""
        work = self._requesting if requesting else self._work
        self._engine.run(work)
        start, stop = self.span
        self._bucket.region.mine[start:stop].copy_(work.out.view(-1))
        work.out = None

    def spread_gradients(self) -> None:
        """Have the reduced gradients everywhere, after `reduce`."""
        self._gather(self._bucket.region.mine, "gradients")

    def publish(self) -> None:
        """Have everybody's parts of the parameters here."""
        self._gather(self.parameters, "parameters")

    def _gather(self, memory: torch.Tensor, what: str) -> None:
        start, stop = self.span
        signature = Signature(
            kind="allgather", dtype=dtype_name(memory), shape=(ROW,), device=memory.device.type
        )
        work = Work(
            signature,
            signature_digest(signature),
            name=f"{self._name}.{what}",
            serial=0,
            array=memory[start:stop].view(-1, ROW),
            out=None,
        )
        self._engine.run(work)
        memory.copy_(work.out.view(-1))


class WindowParts(BucketParts):
    """The same in memory that all ranks of the group share."""

    in_window = True

    def __init__(
        self,
        engine: Engine,
        bucket: GradientBucket,
        parameters: Region,
        name: str,
        divided: tuple[Region, Region],
    ) -> None:
        """``divided`` are the gradients and the parameters, divided."""
        self._divided_gradients, self._divided_parameters = divided
        super().__init__(engine, bucket, parameters, name)

    def _works(self, start: int, stop: int) -> tuple[Work, Work]:
        signature = replace(self._bucket.work.signature, kind="gradient_parts")
        return _pair(signature, self._name, self._divided_gradients)

    def reduce(self, *, requesting: bool) -> None:
        """See `BucketParts`. Ranks do not wait for each other afterwards."""
        self._engine.run(self._requesting if requesting else self._work)

    def spread_gradients(self) -> None:
        """Write this rank's gradients into everybody's memory."""
        self._publish(self._divided_gradients, "gradients")

    def publish(self) -> None:
        """Write this rank's parameters into everybody's memory."""
        self._publish(self._divided_parameters, "parameters")

    def _publish(self, region: Region, what: str) -> None:
        if region.publish is not None:
            region.publish()
        else:
            self._engine.publish_parts(region, f"{self._name}.{what}")


def divide_bucket(engine: Engine, bucket: GradientBucket, parameters: Region, name: str) -> BucketParts:
    """Return the bucket divided among the ranks, in the best way that its memory allows."""
    span = part_of(bucket.region.count, rank=engine.ranks.rank, size=engine.ranks.size)
    gradients = engine.divide(bucket.region, *span)
    divided = engine.divide(parameters, *span) if gradients is not None else None
    if gradients is not None and divided is not None:
        return WindowParts(engine, bucket, parameters, name, (gradients, divided))
    return BucketParts(engine, bucket, parameters, name)


def _pair(signature: Signature, name: str, array: object) -> tuple[Work, Work]:
    """Return the work, and the same with a question mark (see `GradientBucket.requesting`)."""
    first, second = (
        Work(one, signature_digest(one), name=f"{name}.parts", serial=0, array=array, out=None)
        for one in (signature, replace(signature, note=f"{signature.note}?"))
    )
    return first, second
