"""The names of a trainer's parameters in operations, in timelines and in errors."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy

from ringleader.collectives.operations import digest_of
from ringleader.collectives.process_lifecycle import PROCESS
from ringleader.common.array_operations import ALLREDUCE
from ringleader.common.process_sets import ProcessSet
from ringleader.common.reductions import Max

_BITS = 62


class ParameterNames:
    """Gluon's names where all ranks have the same ones, else the parameters' numbers.

    Gluon counts blocks to name them, so a rank that made one more than the others, as for a test of its own,
    has other names for the same parameters.
    """

    def __init__(self, names: Sequence[str], prefix: str, process_set: ProcessSet) -> None:
        """Take this rank's names; ``prefix`` begins what they are in operations."""
        self._own = names
        self._prefix = prefix
        self._process_set = process_set
        self._agreed: list[str] = []
        self._agreed_in: weakref.ref[object] = weakref.ref(self)

    def agreed(self) -> list[str]:
        """Return a name for each parameter, equal on all ranks. Collective once between init and shutdown."""
        engine = PROCESS.get().engine
        if self._agreed_in() is not engine:
            names = self._own if self._equal() else map(str, range(len(self._own)))
            self._agreed = [f"{self._prefix}{name}" for name in names]
            self._agreed_in = weakref.ref(engine)
        return self._agreed

    def _equal(self) -> bool:
        """Return whether all ranks have the same names, each of them once. Ranks that joined do not count."""
        digest = digest_of("\n".join(self._own)) >> 64 - _BITS
        # The largest digest equals the smallest exactly when the largest complement is its complement.
        complement = 2**_BITS - digest
        if len(set(self._own)) < len(self._own):
            complement = 2**_BITS + 1  # of no digest
        mine = numpy.array([digest, complement], "int64")
        largest, complement = ALLREDUCE.run(mine, f"{self._prefix}parameter_names", self._process_set, Max)
        return int(largest) + int(complement) == 2**_BITS
