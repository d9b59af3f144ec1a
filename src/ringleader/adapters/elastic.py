"""States that outlive changes of a job's ranks, and the loop around training. Path and names: Horovod's."""

from __future__ import annotations

import functools
import gc
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, IntFlag
from typing import TYPE_CHECKING, Any

from ringleader.adapters.commit_layout import ArrayCodec, Captured
from ringleader.adapters.commits import CommitError, Commits, SessionPeers
from ringleader.adapters.exceptions import HostsUpdatedInterrupt
from ringleader.adapters.handles import forget_handles
from ringleader.adapters.process_sets import add_process_set, begin_sets, end_sets, sets_of_script
from ringleader.engine.exceptions import HorovodInternalError, MismatchError, NotInitializedError
from ringleader.engine.process_lifecycle import PROCESS, membership

if TYPE_CHECKING:
    from ringleader.engine.mpi_proxy.membership import Membership

__all__ = [
    "CommitError",
    "HorovodInternalError",
    "HostUpdateResult",
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "run_fn",
]


class HostUpdateResult(IntFlag):
    """What an update of a job's hosts did."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


_RESULTS = {1: HostUpdateResult.added, 2: HostUpdateResult.removed, 3: HostUpdateResult.mixed}
"""The launcher's word for it → Horovod's."""
PREPARED_SECONDS = 120.0
"""For an update of the hosts that is being prepared, where a script asks for it."""


class HostMessages(queue.Queue[tuple[int, int]]):
    """Updates of the hosts that this rank has not acted on: (time or serial number, what it did)."""

    def __init__(self, after: int = 0, member: Callable[[], Membership | None] = membership) -> None:
        """Hear of updates of the job with numbers above ``after``. ``member``: this rank's part in it."""
        super().__init__()
        self._member = member
        self._heard = after

    def empty(self) -> bool:
        """Return whether there is none; while the launcher prepares one, it is waited for.

        The launcher reports hosts when ranks can continue with them at once. A script that has to know now
        whether hosts have changed, as few do, gets the answer that Horovod would give.
        """
        until = time.monotonic() + PREPARED_SECONDS
        while not self.take_news() and time.monotonic() < until:
            member = self._member()
            if member is None or not member.preparing() or member.broken():
                break
            time.sleep(0.02)
        return not self.take_news()

    def take_news(self) -> bool:
        """Take what the launcher has said by now; return whether there is any update."""
        member = self._member()
        if member is not None:
            number, result = member.updates()
            if number > self._heard:
                self._heard = number
                self.put((number, _RESULTS.get(result, HostUpdateResult.mixed)))
        return self.qsize() > 0


class State:
    """What training needs to continue after the ranks have changed."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        """``bcast_object`` gives all ranks an object of rank 0, ``get_rank`` is the number of this one."""
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages = HostMessages()
        self._last_updated_timestamp = 0
        """Number of the last update that all ranks acted on."""
        self._pending = [0, 0, 0]
        """Number of the newest update that this rank has heard of since, and what updates did."""
        self._agreed: list[int] | None = None
        """The same of all ranks together, when the state was committed last."""
        self._reset_callbacks: list[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], None]]) -> None:
        """Have functions called whenever ranks were added, replaced or removed, before training continues.

        For what depends on the number of ranks, such as the learning rate.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Do what has to be done when the ranks have changed."""
        self.forget_updates()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: int, update_res: int) -> None:
        """Note an update of the hosts; for programs that report it themselves."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Keep the state as it is now, and raise `HostsUpdatedInterrupt` where hosts have come or go.

        Collective. After a failure training continues from here.
        """
        self._agreed = None
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raise `HostsUpdatedInterrupt` where hosts have come or go, on all ranks alike. Collective."""
        agreed, self._agreed = self._agreed, None
        if membership() is None:
            agreed = self._heard()
        elif agreed is None:
            agreed = SessionPeers(PROCESS.get()).most(self._heard(), "elastic.updates")
        number, removed, added = agreed
        if not removed and not added:
            return
        self._last_updated_timestamp = max(self._last_updated_timestamp, number)
        self._pending = [0, 0, 0]
        raise HostsUpdatedInterrupt(skip_sync=not added)

    def _heard(self) -> list[int]:
        """Return the newest update that this rank has heard of and not acted on, and what updates did."""
        while self._host_messages.take_news():
            number, update = self._host_messages.get()
            if number > self._last_updated_timestamp:
                newest, removed, added = self._pending
                self._pending = [
                    max(newest, number),
                    removed | (int(update) & HostUpdateResult.removed),
                    added | (int(update) & HostUpdateResult.added),
                ]
        return self._pending

    def forget_updates(self) -> None:
        """Hear of updates after those that were acted on."""
        self._host_messages = HostMessages(self._last_updated_timestamp)
        self._pending, self._agreed = [0, 0, 0], None

    def save(self) -> None:
        """Keep the state as it is now."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to what was kept last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Give all ranks the state of rank 0. Collective."""
        raise NotImplementedError

    def reset(self) -> None:
        """Fit the state to the ranks as they are now; it is synchronized after that."""

    def before_reset(self) -> None:
        """Gather what ranks have divided among them, while all of them are there. Collective."""

    def join(self, member: Membership, *, restores: bool, fresh: bool) -> None:
        """Continue in a generation: from its commit if this rank ``restores``, else from the present state.

        ``fresh``: this process has just started.
        """
        if restores and not fresh:
            self.restore()


class ObjectState(State):
    """A state of Python objects, which are attributes of it under the names they are given by.

    A commit keeps them pickled. In an elastic job it is in memory of the host, which outlives the rank.
    """

    _codec = ArrayCodec()

    _beside: tuple[str, ...] = ()
    """Names of what a commit keeps beside the keywords, which `capture` and `load` know."""

    def __init__(
        self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        """See `State`; the other keywords are the objects."""
        self._names = (*self._beside, *kwargs)
        self._commits = Commits(self._codec)
        self._taken_over: int | None = None
        """The newest commit of any rank, while all commit what they have just taken over from rank 0."""
        self._restores: int | None = None
        """Number of the commit that all ranks continue from, while a generation begins."""
        for name, value in kwargs.items():
            setattr(self, name, value)
        super().__init__(bcast_object=bcast_object, get_rank=get_rank)
        if membership() is None:
            self.save()

    def captured(self) -> Mapping[str, Captured]:
        """Return what a commit keeps, by name."""
        return {name: self.capture(name) for name in self._names}

    def capture(self, name: str) -> Captured:
        """Return what a commit keeps of one name."""
        return Captured(value=getattr(self, name))

    def load(self, name: str, value: Any) -> None:
        """Take over a value that `capture` gave, or another rank's."""
        setattr(self, name, value)

    def load_own(self, name: str, value: Any) -> None:
        """Take over what was this rank's own in a commit."""

    def reads_in_place(self, name: str) -> bool:
        """Return whether `load` copies the arrays of a value, so that they may be in the commit."""
        return False

    def save(self) -> None:
        """Commit, without looking for changes of the hosts. Collective in an elastic job."""
        self._agreed = self._commits.write(self.captured, self._heard(), after=self._taken_over)

    def restore(self) -> None:
        """Go back to the newest commit; where there is none, nothing changes."""
        self._read(self._commits.newest() if self._restores is None else self._restores)

    def _read(self, number: int) -> None:
        path = self._commits.memory.origin(number) if number else ""
        try:
            self._take_over(number, from_file=bool(path))
        except HorovodInternalError:
            raise
        except Exception as error:  # whatever values of another model make a framework raise
            if not path:
                raise
            why = " ".join(str(error).split()).rstrip(".")  # the last line of what the rank says
            raise CommitError(
                f"{path} is of another job: its commit {number} does not fit the state of this script: "
                f"{why}. Name another --checkpoint-dir, or move its files away."
            ) from error

    def _take_over(self, number: int, *, from_file: bool) -> None:
        """Load what a commit holds; `ValueError` where one ``from_file`` is of a state with other names."""
        content = self._commits.read(number)
        if content is None:
            return
        if from_file and set(content.parts) != set(self._names):
            held, ours = (", ".join(sorted(names)) for names in (content.parts, self._names))
            raise ValueError(f"it holds {held or 'nothing'}, the state has {ours or 'nothing'}")
        for name in content.parts:
            self.load(name, content.value(name, self._codec, copy=not self.reads_in_place(name)))
            own = content.own(name, self._commits.peers.rank)
            if own is not None:
                self.load_own(name, own)

    def sync(self) -> None:
        """Give all ranks the state of rank 0, and commit it. Collective.

        Arrays travel only where ranks do not all hold the same commit.
        """
        elastic, session, before = membership() is not None, PROCESS.session, self._commits.peers
        if session is not None:
            self._commits.peers = SessionPeers(session)
        try:
            received = self._commits.offer(self.captured, self._bcast_object, shared=elastic)
            for name, value in received.values.items():
                self.load(name, value)
        finally:
            if not elastic:
                self._commits.peers = before
        if received.moved or not received.same_commit:
            self._taken_over = received.newest if elastic and not received.per_rank else None
            try:
                self.save()
            finally:
                self._taken_over = None

    def join(self, member: Membership, *, restores: bool, fresh: bool) -> None:
        """See `State`. A rank that has just started takes the commit too, where its host holds it."""
        self._commits.join(member.commit_memory, SessionPeers(PROCESS.get()))
        if restores:
            self._require(member.restore)
        self._restores = member.restore
        try:
            if restores and fresh:
                self._read(member.restore)
            elif restores:
                self.restore()
        finally:
            self._restores = None

    def _require(self, number: int) -> None:
        """Raise `CommitError` where all are to continue from a commit of which rank 0, this one, has nothing.

        What it has is a step that was not finished, or a script's beginning.
        """
        held = self._commits.memory.held() if number and self._commits.peers.rank == 0 else (number,)
        if number not in held:
            holds = ", ".join(map(str, sorted(held))) or "none"
            raise CommitError(f"rank 0 is to continue from commit {number}, but its host holds {holds}")


class Entry(Enum):
    """How this rank comes to a generation."""

    FRESH = 0
    """It has just started."""
    AS_IT_IS = 1
    """Hosts were added or removed; its state is as training left it."""
    RESTORES = 2
    """Ranks were lost; it goes back to a commit."""


def run_fn(func: Callable[..., Any], reset: Callable[[], None] | None = None) -> Callable[..., Any]:
    """Return a function that calls ``func(state, …)`` anew whenever ranks are lost, replaced or added.

    In between this rank leaves the others and joins them as they are now (``reset`` does it another way), and
    the state is restored and synchronized as needed. It is restored after joining: nobody writes into memory
    that the ranks shared any more, and all know which commit they have in common. In a job that is not
    elastic a failure is passed on.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        elastic = membership() is not None
        rejoin = _rejoin() if reset is None else lambda told: reset()
        entry, skip_sync = Entry.FRESH, False
        while True:
            try:
                if entry is Entry.AS_IT_IS:
                    state.before_reset()
                if entry is not Entry.FRESH:
                    rejoin(_facts(state, entry, skip_sync=skip_sync))
                skip_sync = _join(state, entry, skip_sync=skip_sync)
                if entry is not Entry.FRESH:
                    state.on_reset()
                if not skip_sync:
                    state.sync()
                return func(state, *args, **kwargs)
            except HorovodInternalError as error:
                # Ranks that ask for different things would do so again.
                if not elastic or isinstance(error, MismatchError):
                    raise
                entry, skip_sync = Entry.RESTORES, False
            except HostsUpdatedInterrupt as interrupt:
                entry, skip_sync = Entry.AS_IT_IS, interrupt.skip_sync

    return wrapper


def _join(state: State, entry: Entry, *, skip_sync: bool) -> bool:
    """Agree with the others of a generation what to continue from; restore the state if it is a commit.

    Return whether nobody needs a `sync`.
    """
    member = membership()
    if member is None:
        return skip_sync
    if (told := member.take_entries()) is not None:  # which saves asking for it
        agreed = [max(column) for column in zip(*(one or _NEW_FACTS for one in told), strict=True)]
    else:
        facts = _facts(state, entry, skip_sync=skip_sync)
        agreed = SessionPeers(PROCESS.get()).most(facts, "elastic.join")
    as_it_is, restored, needed, acted_on = agreed
    state._last_updated_timestamp = max(state._last_updated_timestamp, acted_on)
    state.forget_updates()
    # Some heard of new hosts and others of a failure: then the commit counts, for all of them.
    keeps = entry is Entry.AS_IT_IS and not (as_it_is and restored)
    state.join(member, restores=not keeps, fresh=entry is Entry.FRESH)
    return not needed


_NEW_FACTS = (0, 0, 1, 0)
"""The `_facts` of a rank that has just started."""


def _facts(state: State, entry: Entry, *, skip_sync: bool) -> list[int]:
    """Return what the others must know of how a rank comes; the largest of each number counts."""
    as_it_is, restores = entry is Entry.AS_IT_IS, entry is Entry.RESTORES
    return [int(as_it_is), int(restores), int(not skip_sync), state._last_updated_timestamp]


def _rejoin() -> Callable[[Sequence[int]], None]:
    """Return what leaves the other ranks and joins them as they are now, as this process has joined before.

    What it is called with goes to the others. Collective over the ranks of the new generation.
    """
    given, added = sets_of_script()
    session, first = PROCESS.session, None
    if session is not None:
        first = type(session.kernels), session.requested, session.settings.dynamic_sets
    del session  # of which nothing is to be kept alive

    def rejoin(told: Sequence[int]) -> None:
        if first is None:
            raise NotInitializedError
        kernels, requested, dynamic = first
        member = membership()
        broken = member is not None and member.broken()
        PROCESS.shutdown(rejoins=True)
        end_sets()
        forget_handles()
        if broken:
            # Errors and the calls that raised them keep each other, and the memory of the generation.
            gc.collect()
        PROCESS.init(kernels(), requested, dynamic=dynamic, with_sets=bool(given), entry=told)
        begin_sets(given, comm=requested, fresh=True)
        for one in added:
            add_process_set(one)

    return rejoin
