"""What the ranks of the elastic campaign run: every kind of operation in turn, with exact results.

    elastic_script.py DIRECTORY STEPS [AFTER]

Each process tells where it is in ``DIRECTORY/HOST-PID.status`` and writes a line for each step to
``DIRECTORY/HOST-PID.log``. An order that the campaign writes into the status is carried out in its phase; one
in ``DIRECTORY/next`` by the first process that starts, in its ``init``. One that is past its last commit
makes ``DIRECTORY/HOST-PID.past``, takes up to ``AFTER`` seconds, then ``DIRECTORY/HOST-PID.returned``.
"""

import contextlib
import os
import random
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from elastic_status import KINDS, PHASES, Status

import ringleader.torch as hvd
from ringleader.engine.process_lifecycle import PROCESS


def generation() -> int:
    """Return the number of the job's present membership."""
    membership = PROCESS.get().membership
    return membership.generation if membership is not None else 0


class OrderedError(RuntimeError):
    """What a rank raises that was ordered to."""


class Rank:
    """One process's side of the campaign."""

    def __init__(self, directory: Path) -> None:
        """Make the status and the log; take the order for whoever starts next."""
        name = f"{socket.gethostname()}-{os.getpid()}"
        self.status = Status(directory / f"{name}.status", create=True)
        self._place = directory / name
        self._log = (directory / f"{name}.log").open("w", buffering=1)
        with contextlib.suppress(FileNotFoundError):
            kind = (directory / "next").read_text()
            (directory / "next").rename(directory / f"{name}.next")  # one process can
            number = KINDS.index(kind) + 1
            self.status.set(ordered_phase=PHASES.index("init") + 1, ordered_kind=number)

    def enter(self, phase: str) -> None:
        """Say which phase begins; carry out an order that was given for it."""
        number = PHASES.index(phase) + 1
        self.status.set(phase=number)
        kind = self.status.get("ordered_kind")
        if not kind or self.status.get("ordered_phase") != number:
            return
        if KINDS[kind - 1] == "kill":  # in the middle of the operation that follows, or just before it
            longest = 0.03 if phase == "init" else 0.002
            threading.Timer(random.uniform(0.0, longest), self._end).start()
            return
        self.status.set(struck_at=time.monotonic())
        if KINDS[kind - 1] == "exception":
            raise OrderedError("this rank was ordered to fail")
        os._exit(1)

    def _end(self) -> None:
        self.status.set(struck_at=time.monotonic())
        os.kill(os.getpid(), signal.SIGKILL)

    def is_past(self, seconds: float) -> None:
        """Do what a script does after its training."""
        self._place.with_suffix(".past").touch()
        time.sleep(random.uniform(0.0, seconds))
        self._place.with_suffix(".returned").touch()

    def told(self, **numbers: int) -> None:
        """Note the end of a step."""
        now = time.monotonic()
        self.status.set(step_at=now, **numbers)
        words = " ".join(f"{name}={number}" for name, number in numbers.items())
        self._log.write(f"step at={now:.6f} {words}\n")

    def wrong(self, what: str) -> None:
        """Note a wrong result, and fail."""
        self._log.write(f"wrong {what}\n")
        raise AssertionError(what)


def main() -> None:
    """Train until the steps are over."""
    rank = Rank(Path(sys.argv[1]))
    rank.enter("init")
    hvd.init()
    model = torch.nn.Linear(64, 64, bias=False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.001), model.named_parameters(), op=hvd.Sum
    )
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)

    def check(what: str, found: torch.Tensor, expected: float) -> None:
        if not bool((found == expected).all()):
            rank.wrong(f"{what}: {found.flatten()[:4].tolist()} instead of {expected}")

    def operations(step: int) -> None:
        me, size = hvd.rank() + 1, hvd.size()
        total = size * (size + 1) // 2
        factor = step % 100 + 1
        rank.enter("allreduce")
        for count in (10, 300_000):
            found = hvd.allreduce(torch.full((count,), float(me * factor)), op=hvd.Sum)
            check("allreduce", found, float(total * factor))
        rank.enter("fused")
        handles = [
            hvd.allreduce_async(torch.full((100,), float(me * factor + i)), op=hvd.Sum, name=f"small.{i}")
            for i in range(20)
        ]
        for i, handle in enumerate(handles):
            check("fused", hvd.synchronize(handle), float(total * factor + size * i))
        rank.enter("gradients")
        optimizer.zero_grad()
        (model.weight.sum() * me).backward()
        optimizer.synchronize()
        check("gradients", model.weight.grad, float(total))
        with optimizer.skip_synchronize():
            optimizer.step()
        rank.enter("broadcast")
        check("broadcast", hvd.broadcast(torch.full((5000,), float(me)), root_rank=size - 1), float(size))
        rank.enter("allgather")
        check("allgather", hvd.allgather(torch.full((3, 2), float(me))).sum(), float(6 * total))
        rank.enter("join")
        first = step % size + 1  # which has no more data than the others
        if me != first:
            found = hvd.allreduce(torch.full((50,), float(me * factor)), op=hvd.Sum, name="join")
            check("join", found, float((total - first) * factor))
        hvd.join()

    @hvd.elastic.run
    def train(state: Any) -> None:
        rank.status.set(rank=hvd.rank(), size=hvd.size())
        try:
            while state.step < int(sys.argv[2]):
                one_step(state)
        except (hvd.elastic.HorovodInternalError, hvd.elastic.HostsUpdatedInterrupt):
            rank.enter("init")  # of the next generation
            raise

    def one_step(state: Any) -> None:
        operations(state.step)
        state.step += 1
        rank.told(step=state.step, rank=hvd.rank(), size=hvd.size(), generation=generation())
        rank.enter("commit")
        state.commit()
        rank.enter("idle")
        time.sleep(0.002)

    train(state)
    rank.is_past(float(sys.argv[3]) if len(sys.argv) > 3 else 0.0)


if __name__ == "__main__":
    main()
