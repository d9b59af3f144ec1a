"""What the ranks of the elastic campaign run: every kind of operation in turn, with exact results.

    elastic_script.py DIRECTORY STEPS [AFTER]

Each process writes a line for each step to ``DIRECTORY/HOST-PID.log``. The order in ``HOST-PID.order``, a
phase and a way to fail, is carried out in that phase. One that is past its last commit makes
``HOST-PID.past``, takes up to ``AFTER`` seconds, then ``HOST-PID.returned``.
"""

import fcntl
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

import ringleader.torch as hvd
from ringleader.engine.process_lifecycle import PROCESS


def generation() -> int:
    membership = PROCESS.get().membership
    return membership.generation if membership is not None else 0


class OrderedError(RuntimeError):
    """What a rank raises that was ordered to."""


class Rank:
    """One process's side of the campaign."""

    def __init__(self, directory: Path) -> None:
        """Make the log, whose lock is held for as long as the process lives."""
        self._place = directory / f"{socket.gethostname()}-{os.getpid()}"
        self._order = self._place.with_suffix(".order")
        fresh = self._place.with_suffix(".new")
        self._log = fresh.open("w", buffering=1)
        fcntl.flock(self._log, fcntl.LOCK_EX)
        fresh.rename(self._place.with_suffix(".log"))

    def note(self, what: str, **numbers: int) -> None:
        """Write a line with the time, which all processes of a machine share."""
        words = " ".join(f"{name}={number}" for name, number in numbers.items())
        self._log.write(f"{what} at={time.monotonic():.6f} {words}\n")

    def enter(self, phase: str) -> None:
        """Begin a phase; carry out an order that was given for it."""
        if phase == "init":
            self.note("init")
        if not self._order.exists():
            return
        wanted, kind = self._order.read_text().split()
        if wanted != phase:
            return
        if kind == "kill":  # in the middle of the operation that follows, or just before it
            longest = 0.03 if phase == "init" else 0.002
            threading.Timer(random.uniform(0.0, longest), self._end).start()
            return
        self.note("struck")
        if kind == "exception":
            raise OrderedError("this rank was ordered to fail")
        os._exit(1)

    def _end(self) -> None:
        self.note("struck")
        os.kill(os.getpid(), signal.SIGKILL)

    def is_past(self, seconds: float) -> None:
        """Do what a script does after its training."""
        self._place.with_suffix(".past").touch()
        time.sleep(random.uniform(0.0, seconds))
        self._place.with_suffix(".returned").touch()

    def wrong(self, what: str) -> None:
        self._log.write(f"wrong {what}\n")
        raise AssertionError(what)


def main() -> None:
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
        try:
            while state.step < int(sys.argv[2]):
                one_step(state)
        except (hvd.elastic.HorovodInternalError, hvd.elastic.HostsUpdatedInterrupt):
            rank.enter("init")  # of the next generation
            raise

    def one_step(state: Any) -> None:
        operations(state.step)
        state.step += 1
        rank.note("step", rank=hvd.rank(), size=hvd.size(), generation=generation())
        rank.enter("commit")
        state.commit()
        rank.enter("idle")
        time.sleep(0.002)

    train(state)
    rank.is_past(float(sys.argv[3]) if len(sys.argv) > 3 else 0.0)


if __name__ == "__main__":
    main()
