"""Process sets: groups of ranks that do operations on their own. Path, names and meanings are Horovod's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from ringleader.adapters.handles import forget_kept
from ringleader.engine.process_lifecycle import PROCESS, membership
from ringleader.engine.rank_group import Group


class ProcessSet:
    """Some of the ranks. `init` or `add_process_set` registers it, then operations take it."""

    def __init__(self, ranks_or_comm: Iterable[int] | Any) -> None:
        """Describe the set by the numbers of its ranks, or by an mpi4py communicator over them."""
        self.process_set_id: int | None = None
        self.ranks: list[int] | None = None
        self._requested: list[int] | None = None
        """The ranks that the script named; in an elastic job some of them may be missing for a time."""
        self.mpi_comm: Any = None
        if hasattr(ranks_or_comm, "Get_group"):
            self.mpi_comm = ranks_or_comm
        else:
            self.ranks = sorted(int(rank) for rank in ranks_or_comm)

    def size(self) -> int | None:
        """Return the number of ranks in the set, None before it is registered."""
        return None if self.process_set_id is None else len(self.ranks or ())

    def rank(self) -> int | None:
        """Return this rank's number within the set, None before that is registered.

        `ValueError` where this rank is not in it.
        """
        return None if self.process_set_id is None else group_of(self, "ProcessSet.rank").ranks.rank

    def included(self) -> bool | None:
        """Return whether this rank is in the set, None before that is registered."""
        return None if self.process_set_id is None else PROCESS.get().ranks.rank in (self.ranks or ())

    def __str__(self) -> str:
        return (
            f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"
        )


global_process_set = ProcessSet([])
"""All ranks."""
global_process_set.process_set_id = 0

_REGISTERED: list[ProcessSet] = []
"""Objects of the script that stand for registered sets; they are notified when these are removed."""
_GIVEN: list[ProcessSet] = []
"""Those that `init` was given, also where none of their ranks is there."""
_ADDED: list[ProcessSet] = []
"""Those that were added later."""

COUNTED: defaultdict[int | None, int] = defaultdict(int)
"""Number of a process set → operations of it that this rank has asked for; see `next_serial`."""


def number_of(process_set: ProcessSet) -> int | None:
    """Return the number of a process set, `None` where it is not registered; `TypeError` where it is none."""
    try:
        return process_set.process_set_id
    except AttributeError:
        raise TypeError(
            f"process_set= takes an hvd.ProcessSet, not {process_set!r}; leave it out to mean all ranks."
        ) from None


def next_serial(process_set: ProcessSet) -> int:
    """Count an operation of a process set; the number names it where the script does not.

    `TypeError` where it is not a process set.

    Every set counts for itself: ranks that are in different sets do not ask for the same ones. Every
    operation of every kind is counted before anything else is looked at, also one that fails then: where
    ranks differ in what fails, they count alike.
    """
    process_set_id = number_of(process_set)
    serial = COUNTED[process_set_id]
    COUNTED[process_set_id] = serial + 1
    return serial


def begin_operation(process_set: ProcessSet, operation: str) -> tuple[Group, int]:
    """Return what `group_of` and `next_serial` return, for an operation that begins; errors are theirs."""
    session = PROCESS.session
    if process_set is global_process_set and session is not None and global_process_set.process_set_id == 0:
        serial = COUNTED[0]
        COUNTED[0] = serial + 1
        return session.group, serial
    serial = next_serial(process_set)
    return group_of(process_set, operation), serial


def count_from(serial: int, process_set_id: int = 0) -> None:
    """Continue counting a set's operations from a number: after a join, or where a number gets a new set."""
    COUNTED[process_set_id] = serial


def group_of(process_set: ProcessSet, operation: str) -> Group:
    """Return this rank's part in a set; ``operation`` is whose error it is.

    Raises `NotInitializedError` before `init`, and `ValueError` where the set is not registered or this rank
    is not in it.
    """
    session = PROCESS.get()
    number = number_of(process_set)
    if number == 0:
        return session.group
    if number is None or session.registry.table.ranks(number) is None:
        raise ValueError(f"{operation}: the process set provided is not registered, or was removed.")
    group = session.registry.group(number)
    if group is None:
        raise ValueError(
            f"{operation}: Rank {session.ranks.rank} is not a member of the provided process set."
        )
    return group


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a set after `init` and return it. All ranks call this, in the same order.

    `ValueError` where there is a set of the same ranks, where they are not ranks of this job, and where
    neither HOROVOD_DYNAMIC_PROCESS_SETS=1 nor ``process_sets="dynamic"`` was given to `init`. In an elastic
    job the set may name ranks that are missing for a time.
    """
    session = PROCESS.get()
    if not session.settings.dynamic_sets:
        raise ValueError(
            "Process sets can be added after hvd.init() only with HOROVOD_DYNAMIC_PROCESS_SETS=1, or "
            'hvd.init(process_sets="dynamic").'
        )
    chosen = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if chosen.process_set_id is not None:
        raise ValueError(f"{chosen} is registered already.")
    _look_up_ranks(chosen)
    if membership() is not None:
        return _add_present(chosen)
    chosen.process_set_id = session.registry.add(chosen.ranks or [])
    count_from(0, chosen.process_set_id)
    _REGISTERED.append(chosen)
    return chosen


def _add_present(chosen: ProcessSet) -> ProcessSet:
    """Register those of a set's ranks that are there now; see `ProcessSetRegistry.add_present`."""
    registry = PROCESS.get().registry
    _fits(chosen)
    requested = chosen._requested or []
    before = registry.table.all()
    taken = any(one._requested == requested for one in (*_GIVEN, *_ADDED))
    number = registry.add_present(requested, taken=taken)
    _ADDED.append(chosen)
    if number is not None:
        chosen.process_set_id = number
        _REGISTERED.append(chosen)
        if number not in before:
            count_from(0, number)
    return chosen


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forget a set; True where that was done. All ranks call this, in the same order.

    The set of all ranks stays, and what is not registered cannot be removed: False.
    """
    session = PROCESS.get()
    number = number_of(process_set)
    if number is None and process_set in _ADDED:  # of an elastic job: none of its ranks is there now
        _ADDED.remove(process_set)
        return True
    if number is None or number == 0 or not session.remove_set(number):
        return False
    _GIVEN[:] = [known for known in _GIVEN if known.process_set_id != number]
    _ADDED[:] = [known for known in _ADDED if known.process_set_id != number]
    _forget([known for known in _REGISTERED if known.process_set_id == number])
    process_set.process_set_id = None
    return True


def begin_sets(process_sets: Sequence[ProcessSet], *, comm: Any, fresh: bool) -> None:
    """Register what `init` was given; ``fresh`` unless `init` was called before.

    `ValueError` where two of them, or one and the set of all ranks, have the same ranks; then those before it
    are registered, and so is the set of all ranks.
    """
    session = PROCESS.get()
    if fresh:
        _forget(list(_REGISTERED))
        COUNTED.clear()
        global_process_set.ranks = list(range(session.ranks.size))
        global_process_set.mpi_comm = comm if hasattr(comm, "Get_group") else None
    elastic = membership() is not None
    for one in process_sets:
        _look_up_ranks(one)
    if fresh:
        _GIVEN[:], _ADDED[:] = process_sets, []
    if elastic:
        process_sets = [one for one in process_sets if _fits(one)]
    if fresh and session.sets_to_register:
        session.registry.begin([one.ranks or [] for one in process_sets])
    taken = {0}
    for one in process_sets:
        number = session.registry.table.find(tuple(one.ranks or ()))
        if number is None:
            raise ValueError(f"{one} is not registered: hvd.init() was called before, without it.")
        if number in taken and not elastic:
            raise ValueError(f"{one} has the same ranks as another process set.")
        taken.add(number)
        one.process_set_id = number
        _REGISTERED.append(one)


def sets_of_script() -> tuple[list[ProcessSet], list[ProcessSet]]:
    """Return the sets that `init` was given, and those that were added later."""
    return list(_GIVEN), list(_ADDED)


def _fits(process_set: ProcessSet) -> bool:
    """Have a set consist of those of its ranks that are there now; return whether that is any.

    For elastic jobs, whose number of ranks changes. Sets that come to have the same ranks share a number.
    """
    if process_set._requested is None:
        process_set._requested, process_set.mpi_comm = list(process_set.ranks or ()), None
    size = PROCESS.get().ranks.size
    process_set.ranks = [rank for rank in process_set._requested if rank < size]
    return bool(process_set.ranks)


def renew_sets(sets: Sequence[Sequence[int]]) -> None:
    """Register in a new session the sets of the one before it; the script's objects keep standing for them.

    Collective over all ranks, with the same sets.
    """
    COUNTED.clear()
    registry = PROCESS.get().registry
    registry.begin(sets)
    for one in _REGISTERED:
        one.process_set_id = registry.table.find(tuple(one.ranks or ()))


def end_sets() -> None:
    """Have all objects of the script stand for no set any more."""
    _forget(list(_REGISTERED))


def process_set_ids_and_ranks() -> dict[int, list[int]]:
    """Return number → ranks of all registered sets."""
    return {number: list(ranks) for number, ranks in PROCESS.get().registry.table.all().items()}


def _look_up_ranks(process_set: ProcessSet) -> None:
    if process_set.mpi_comm is not None:
        process_set.ranks = sorted(PROCESS.get().ranks_of(process_set.mpi_comm))


def _forget(process_sets: Sequence[ProcessSet]) -> None:
    forget_kept()  # they go to the engines of sets
    for one in process_sets:
        one.process_set_id = None
        _REGISTERED.remove(one)
