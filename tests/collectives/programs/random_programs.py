"""A rank that carries out random programs and compares every result with NumPy.

    random_programs.py SOCKET     programs come as lines of JSON from `test_programs.py`, one answer each
    random_programs.py FILE       carry out the one program in a JSON file: how a failure is replayed

A program is a list of phases. All ranks go through the phases in one order; what they do inside a phase, and
in which order, is each rank's own affair.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from expected import Operation, compare, inputs, outputs, received
from refusals import refused as raises
from serving import serve

import ringleader.torch as hvd

SCALED = ("allreduce", "grouped_allreduce", "reducescatter", "grouped_reducescatter")
os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
SETS: dict[tuple[int, ...], Any] = {tuple(range(SIZE)): hvd.global_process_set}
HELD: list[tuple[list[torch.Tensor], str]] = []
"""Results that a program has kept, and their bits: later ones are made in the memory of others."""


def process_set(members: list[int]) -> Any:
    """Return the set of these ranks; it is made when it is first used, by all ranks in one order."""
    key = tuple(members)
    if key not in SETS:
        SETS[key] = hvd.add_process_set(list(key))
    return SETS[key]


def as_tensor(array: Any, dtype: str, *, strided: bool) -> torch.Tensor:
    tensor = torch.from_numpy(array).to(getattr(torch, dtype))
    if strided and tensor.dim() > 0:
        return torch.stack([tensor, torch.zeros_like(tensor)], dim=-1)[..., 0]
    return tensor


def digest(tensors: list[torch.Tensor]) -> str:
    """Return what tells bits apart, so that ranks can be compared with each other."""
    found = hashlib.sha256()
    for one in tensors:
        # A tensor without elements may have strides that cannot be looked at as bytes.
        flat = torch.empty(one.numel(), dtype=one.dtype).copy_(one.reshape(-1))
        found.update(flat.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


class Asked:
    """One operation that this rank takes part in, from the call to the check of its result."""

    def __init__(self, operation: Operation) -> None:
        self.right = operation
        wrong = operation["wrong"]
        self.made = {**operation, **wrong["fields"]} if wrong and wrong["rank"] == RANK else operation
        self.set = process_set(operation["members"])
        self.member = operation["members"].index(RANK) if RANK in operation["members"] else None
        # Ranks outside the set call too, and are told that they may not.
        arrays = inputs(self.made, self.member or 0)
        self.tensors = [as_tensor(one, self.made["dtype"], strided=operation["strided"]) for one in arrays]
        self.before = digest(self.tensors)
        self.handle: int | None = None

    def call(self, later: bool) -> Any:
        """Call the operation; ``later`` says that a handle is wanted."""
        made, kind = self.made, self.made["kind"]
        words: dict[str, Any] = {"name": made["name"], "process_set": self.set}
        if kind in SCALED:
            words["op"] = getattr(hvd, made["op"])
            words |= {"prescale_factor": made["prescale"], "postscale_factor": made["postscale"]}
        if kind == "broadcast":
            words["root_rank"] = made["members"][made["root"]]
        if kind == "alltoall" and made["say_splits"]:
            words["splits"] = torch.tensor(made["splits"][self.member or 0], dtype=torch.int32)
        function = getattr(hvd, kind + "_async" * later + "_" * made["inplace"])
        return function(self.tensors if kind.startswith("grouped_") else self.tensors[0], **words)

    def begin(self) -> None:
        if self._refused():
            return
        self.handle = self.call(later=True)
        assert isinstance(self.handle, int)

    def end(self) -> str | None:
        if self.handle is None:
            return None
        handle, self.handle = self.handle, None
        said = self._checked(lambda: hvd.synchronize(handle), pairs=True)
        assert hvd.synchronize(handle) is None, "a handle that was waited for is known still"
        return said

    def do(self) -> str | None:
        return None if self._refused() else self._checked(lambda: self.call(later=False), pairs=False)

    def _refused(self) -> bool:
        if self.member is not None:
            return False
        raises(ValueError, lambda: self.call(later=False), "not a member")
        return True

    def _checked(self, work: Any, *, pairs: bool) -> str | None:
        if self.right["wrong"] is None:
            return self._same(work(), pairs=pairs)
        raises(hvd.HorovodInternalError, work, "Mismatched")
        return None

    def _same(self, result: Any, *, pairs: bool) -> str | None:
        """Compare with NumPy; return the bits of a result that every member must have."""
        assert self.member is not None
        if self.right["kind"] == "alltoall" and (pairs or self.right["say_splits"]):
            result, counts = result
            assert counts.tolist() == received(self.right, self.member), counts
        got = list(result) if isinstance(result, list | tuple) else [result]
        assert all(one.dtype == getattr(torch, self.right["dtype"]) for one in got)
        want = outputs(self.right, self.member)
        compare(self.right, [one.to(torch.float64).numpy() for one in got], want)
        if self.right["inplace"]:
            assert all(one is mine for one, mine in zip(got, self.tensors, strict=True))
        else:
            assert digest(self.tensors) == self.before, "the input has changed"
        if self.right["seed"] % 2:
            HELD.append((got, digest(got)))
        parted = self.right["kind"] == "alltoall" or "scatter" in self.right["kind"]
        return None if parted else digest(got)


def operations(phase: dict[str, Any], pending: list[Asked]) -> list[str | None]:
    asked = [Asked(one) for one in phase["operations"]]
    if any(one["name"] is None for one in phase["operations"]):
        hvd.join()  # it makes equal the ranks' counts of operations, by which those without a name are known
    time.sleep(phase["late"][RANK] / 1000)
    if phase["how"] == "sync":
        return [one.do() for one in asked]
    for index in phase["begin"][RANK]:
        asked[index].begin()
    if phase["how"] == "pending":
        pending.extend(asked)
        return []
    said: dict[int, str | None] = {index: asked[index].end() for index in phase["end"][RANK]}
    return [said[index] for index in range(len(asked))]


def joining(phase: dict[str, Any]) -> list[str | None]:
    """Join after this many operations as this rank has; who joins earlier counts as zeros."""
    counts = phase["counts"]
    for step in range(counts[RANK]):
        there = [rank for rank in range(SIZE) if counts[rank] > step]
        tensor = torch.full((3,), RANK + 1, dtype=getattr(torch, phase["dtype"]))
        total = sum(rank + 1 for rank in there)
        average = phase["op"] == "Average"
        got = hvd.allreduce(tensor, name=f"{phase['name']}.{step}", op=getattr(hvd, phase["op"]))
        want = np.full(3, total / SIZE if average else total)
        compare(
            phase, [got.to(torch.float64).numpy()], [want if "float" in phase["dtype"] else np.trunc(want)]
        )
        if phase["gather"] and len(there) < SIZE:
            name = f"{phase['name']}.{step}"
            raises(hvd.HorovodInternalError, lambda n=name: hvd.allgather(torch.ones(2), name=n))
    last = hvd.join()
    assert 0 <= last < SIZE
    return [str(last)]


def twice(phase: dict[str, Any]) -> list[str | None]:
    """Ask for one name twice on one rank while the others cannot have asked for it yet."""
    tensor, handle = torch.ones(4), None
    if phase["rank"] == RANK:
        handle = hvd.allreduce_async(tensor, name=phase["name"], op=hvd.Sum)
        raises(ValueError, lambda: hvd.allreduce_async(tensor, name=phase["name"], op=hvd.Sum))
    hvd.barrier()
    if handle is None:
        handle = hvd.allreduce_async(tensor, name=phase["name"], op=hvd.Sum)
    assert hvd.synchronize(handle).tolist() == [float(SIZE)] * 4
    return []


def refused(phase: dict[str, Any]) -> list[str | None]:
    tensor = torch.ones(4)
    calls: dict[str, tuple[Any, Any]] = {
        "type": (ValueError, lambda: hvd.allreduce(tensor.to(torch.complex64), name="refused")),
        "root": (ValueError, lambda: hvd.broadcast(tensor, SIZE + 3, name="refused")),
        "splits": (ValueError, lambda: hvd.alltoall(tensor, torch.ones(SIZE + 1, dtype=torch.int32))),
        "scatter": (hvd.HorovodInternalError, lambda: hvd.reducescatter(tensor, op=hvd.Max)),
    }
    raises(*calls[phase["what"]])
    return []


def barrier(phase: dict[str, Any]) -> list[str | None]:
    place = process_set(phase["members"])
    time.sleep(phase["late"][RANK] / 1000)
    if RANK in phase["members"]:
        hvd.barrier(process_set=place)
    return []


def sets(phase: dict[str, Any]) -> list[str | None]:
    """Remove a set; its next use makes it anew."""
    known = SETS.pop(tuple(phase["members"]), None)
    assert known is None or hvd.remove_process_set(known)
    return []


PHASES = {"joining": joining, "twice": twice, "refused": refused, "barrier": barrier, "sets": sets}


def correct() -> None:
    """An allreduce that must be right, whatever came before it."""
    got = hvd.allreduce(torch.full((5,), RANK + 1.0), name="correct", op=hvd.Sum)
    assert got.tolist() == [SIZE * (SIZE + 1) / 2] * 5, got


def carry_out(program: list[dict[str, Any]]) -> list[str | None]:
    """Carry out a program; return the bits that ranks must share, None where there are none."""
    said: list[str | None] = []
    pending: list[Asked] = []
    HELD.clear()
    for phase in program:
        if phase["kind"] == "operations":
            said += operations(phase, pending)
            if any(one["wrong"] for one in phase["operations"]) and phase["how"] != "pending":
                correct()
            continue
        if phase["kind"] in ("joining", "sets"):
            # What a rank has asked for it must have got before it joins, or gives a set up.
            said += [one.end() for one in pending]
            pending.clear()
        said += PHASES[phase["kind"]](phase)
    said += [one.end() for one in pending]
    correct()
    assert all(digest(kept) == bits for kept, bits in HELD), "a result has changed"
    return said


def again() -> list[str | None]:
    """Begin a new life of the engine: what an earlier one has left undone is over."""
    hvd.shutdown()
    hvd.init()
    SETS.clear()
    SETS[tuple(range(SIZE))] = hvd.global_process_set
    return []


if __name__ == "__main__":
    source = Path(sys.argv[1])
    if source.is_socket():
        serve(str(source), carry_out, again)
    else:
        print(carry_out(json.loads(source.read_text())), flush=True)
        hvd.shutdown()
