"""From a script's tensors to works in the engine: every operation of every kind is submitted here.

An operation is on one tensor or on a group of them, which the ranks see all or none of. The members are known
as ``<name>_<i>of<n>``, or by a name each. Types and shapes may differ within a group. A tensor is whatever
the framework computes with; nothing here looks inside one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from numbers import Real
from typing import Any

from ringleader.adapters.handles import finish, new_handle
from ringleader.adapters.process_sets import ProcessSet, begin_operation, group_of, next_serial
from ringleader.engine.group_engine import Engine
from ringleader.engine.operations import ReduceOp, Signature, Work, signature_digest
from ringleader.engine.reduction_kernels import Array


class Operation:
    """One kind of operation: how a tensor becomes a work, and a finished work the script's result."""

    def __init__(
        self,
        title: str,
        describe: Callable[..., Work],
        *,
        result: Callable[[Work, Array], Any] | None = None,
        gradient: Callable[..., Sequence[Any]] | None = None,
        check: Callable[..., object] = lambda *_arguments: None,
    ) -> None:
        """``title`` begins the messages of errors.

        ``describe`` takes this rank's part in the process set, the tensor, its name, the operation's number,
        and then the arguments of this kind of operation; it raises what is wrong with them. ``result``
        returns the script's result for a finished work and the tensor; None for the new tensor that the
        work made. ``gradient``: its rule, see `operation_kinds.Gradient`. ``check`` raises what is wrong
        with a shape, a type and arguments, before there is a tensor.
        """
        self.title = title
        self.describe = describe
        self.gradient = gradient
        self.check = check
        self._result = result
        self._broadcasts = title == "Broadcast"  # there is an engine for these

    def run(self, tensor: Array, name: str | None, process_set: ProcessSet, *arguments: Any) -> Any:
        """Do the operation on one tensor and return its result."""
        # Not by `prepare`: what the most frequent operations cost besides the exchange counts.
        group, serial = begin_operation(process_set, self.title)
        work = self.describe(group, tensor, name, serial, *arguments)
        (group.broadcaster if self._broadcasts else group.engine).run(work)
        return work.out if self._result is None else self._result(work, tensor)

    def begin(self, tensor: Array, name: str | None, process_set: ProcessSet, *arguments: Any) -> int:
        """Begin the operation on one tensor and return a handle.

        A name that is pending here is a `ValueError`.
        """
        engine, works = self.prepare((tensor,), name, process_set, arguments, grouped=False)
        engine.submit(works[0])
        return new_handle(engine, works, lambda: self.results(works, (tensor,))[0])

    def run_group(
        self, tensors: Sequence[Array], name: str | None, process_set: ProcessSet, *arguments: Any
    ) -> tuple[Any, ...]:
        """Do the operation on several tensors and return their results."""
        tensors = tuple(tensors)
        return self.results(self.works(tensors, name, process_set, arguments, grouped=True), tensors)

    def begin_group(
        self,
        tensors: Sequence[Array],
        name: str | Sequence[str] | None,
        process_set: ProcessSet,
        *arguments: Any,
    ) -> int:
        """Begin the operation on several tensors and return one handle, for a tuple of the results.

        ``name`` is that of the group, or a list of the tensors' own.
        """
        tensors = tuple(tensors)
        engine, works = self.prepare(tensors, name, process_set, arguments, grouped=True)
        engine.submit_all(works)
        return new_handle(engine, works, lambda: self.results(works, tensors))

    def works(
        self,
        tensors: Sequence[Array],
        name: str | None,
        process_set: ProcessSet,
        arguments: tuple[Any, ...],
        *,
        grouped: bool,
    ) -> list[Work]:
        """Do the operation on a group, or on the one tensor unless ``grouped``; return the finished works."""
        engine, works = self.prepare(tensors, name, process_set, arguments, grouped=grouped)
        if not grouped:
            engine.run(works[0])
            return works
        engine.submit_all(works)
        finish(engine, works)
        return works

    def prepare(
        self,
        tensors: Sequence[Array],
        name: str | Sequence[str] | None,
        process_set: ProcessSet,
        arguments: tuple[Any, ...],
        *,
        grouped: bool,
        counted: bool = True,
    ) -> tuple[Engine, list[Work]]:
        """Describe the operation on a group, or on the one tensor; return its engine and works to submit.

        Without ``counted`` they are not counted among the operations of the process set: they have a name,
        and ranks may do them in different orders.
        """
        serial = next_serial(process_set) if counted else 0
        group = group_of(process_set, self.title)
        names: Sequence[Any] = (name,)
        if grouped and (name is None or isinstance(name, str)):
            base = f"noname.{serial}" if name is None else name
            names = [f"{base}_{at}of{len(tensors)}" for at in range(1, len(tensors) + 1)]
        elif grouped:
            if not isinstance(name, Sequence):
                raise ValueError(f"the name of an operation is a string, not {name!r}")
            names = name
        works = [
            self.describe(group, tensor, own, serial, *arguments)
            for own, tensor in zip(names, tensors, strict=True)
        ]
        return group.broadcaster if self._broadcasts else group.engine, works

    def results(self, works: Sequence[Work], tensors: Sequence[Array]) -> tuple[Any, ...]:
        """Return the script's results for finished works and the tensors that they were described for."""
        if self._result is None:
            return tuple(work.out for work in works)
        return tuple(map(self._result, works, tensors))


def named_work(signature: Signature, name: str, array: Any, out: Any = None) -> Work:
    """Return our own work: it has a name, and is not counted among a process set's."""
    return Work(signature, signature_digest(signature), name=name, serial=0, array=array, out=out)


def work_and_request(signature: Signature, name: str, array: Any, out: Any = None) -> tuple[Work, Work]:
    """Return a work, and the same with a question mark: a rank that brings that has something to agree on."""
    asking = replace(signature, note=f"{signature.note}?")
    return named_work(signature, name, array, out), named_work(asking, name, array, out)


@lru_cache(maxsize=4096)
def signature_for(
    kind: str,
    dtype: str,
    shape: tuple[int, ...],
    device: str,
    op: ReduceOp,
    root: int,
    prescale: float,
    postscale: float,
    note: str,
) -> tuple[Signature, int]:
    """Return a signature and its digest. Kept, as most operations of a training come again in every step.

    `ValueError` for a factor that is not a number.
    """
    factors: dict[str, object] = {"prescale_factor": prescale, "postscale_factor": postscale}
    for word, factor in factors.items():
        if not isinstance(factor, Real):
            raise ValueError(f"{word} is a number, not {factor!r}")
    signature = Signature(
        kind=kind,
        dtype=dtype,
        shape=tuple(shape),
        device=device,
        op=op,
        root=root,
        prescale=prescale,
        postscale=postscale,
        note=note,
    )
    return signature, signature_digest(signature)
