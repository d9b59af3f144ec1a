"""The session of this process: opened by ``init``, closed by ``shutdown`` or at exit; never a child's.

Ranks end together: each tells the others how, and waits for them if it can. `engine_session` holds what lives
meanwhile.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ringleader.agents.training_progress import Reporter, report_fd
from ringleader.engine import loaded_mpi
from ringleader.engine.communicator import Call, Segment
from ringleader.engine.engine_session import Session, open_session
from ringleader.engine.engine_settings import read_settings
from ringleader.engine.exceptions import HorovodInternalError, NotInitializedError, WorldError
from ringleader.engine.framework_adapter import FrameworkAdapter
from ringleader.engine.mpi_communicator import free_windows_left
from ringleader.engine.peer_wait import End, EndMessages, PeerEnd
from ringleader.engine.traffic import as_report

if TYPE_CHECKING:
    from ringleader.engine.mpi_proxy.membership import ElasticRank, Membership

FAREWELL_SECONDS = 0.3
"""A rank that ends this much before its peers on other hosts tells them."""
DRAIN_SECONDS = 0.2
"""How long a rank that does not wait for the others has its messages to them sent."""


def _elastic_rank() -> ElasticRank | None:
    """Return this process's part in an elastic job; None in any other job, which loads nothing for it."""
    module = sys.modules.get("ringleader.engine.mpi_proxy.membership")
    found: ElasticRank | None = None if module is None else module.ELASTIC
    return found


def _leave_generation() -> None:
    if (elastic := _elastic_rank()) is not None:
        elastic.leave()


def close_session(session: Session, how: End, *, rejoins: bool = False) -> tuple[bool, list[Segment]]:
    """End a session; return whether all peers took part, and shared memory that arrays still look at.

    ``rejoins``: in an elastic job this rank leaves for the next generation, and so do the others.
    """
    session.at_shutdown.call()
    clean = session.registry.close(
        why=f"Horovod has been shut down: rank {session.ranks.rank} called hvd.shutdown() or ended."
    )
    session.timelines.stop()
    if session.traffic:
        Reporter(report_fd(os.environ)).write(as_report(session.traffic))
    if session.base is None:
        return True, []
    if session.membership is not None and (rejoins or session.membership.broken()):
        # Some rank will never come, or all are on their way to the next generation, where they meet. What
        # this one has is its own, so nothing of it is given back.
        left = session.registry.free(together=False)
        _leave_generation()
        return how is End.SHUT_DOWN, left
    together, give_back = _end_together(session, how, clean=clean)
    left = session.registry.free(together=give_back)
    if give_back:
        if session.deadlock_check is not None:
            session.deadlock_check.drain()
        session.base.free()
    if how is not End.RAISED:  # then its end is to be noticed
        _leave_generation()
    return together, left


def _end_together(session: Session, how: End, *, clean: bool) -> tuple[bool, bool]:
    """Tell the peers that this rank ends, and wait until all of them end too.

    Return whether all did, none by raising, and whether what they own together can be given back: that is
    not so if one of them is not ``clean``, as it left in the middle of an operation. A peer that has gone
    without a word is not waited for; standard error tells which.
    """
    ranks, flags, messages = session.ranks, session.group.flags, session.end_messages
    assert messages is not None
    near = ranks.host_ranks if flags else (ranks.rank,)
    away = [rank for rank in range(ranks.size) if rank not in near]
    if flags:
        flags.announce_end(how)
    try:
        if how is not End.RAISED:
            return _barrier_of_ends(session, how, messages, away, clean=clean)
    except HorovodInternalError as error:
        text = f"ringleader: {error}; rank {ranks.rank} ends without the others"
        print(text, file=sys.stderr, flush=True)  # noqa: T201
        return False, False
    except BaseException:
        # An interrupt, or a signal's handler: the others must not wait for this rank inside MPI.
        if flags:
            flags.announce_end(End.RAISED)
        messages.send(End.RAISED, away)
        messages.drain(DRAIN_SECONDS)
        raise
    messages.send(how, away)
    messages.drain(DRAIN_SECONDS)
    return False, False


def _barrier_of_ends(
    session: Session, how: End, messages: EndMessages, away: list[int], *, clean: bool
) -> tuple[bool, bool]:
    base, peer_wait, flags = session.base, session.end_wait, session.group.flags
    assert base is not None and peer_wait is not None
    barrier, start, told, raised = base.begin(Call.BARRIER), time.monotonic(), not away, False

    def ends() -> dict[int, PeerEnd]:
        """Return the ranks known to have ended."""
        return {**messages(), **(flags.ended() if flags else {})}

    def over() -> bool:
        nonlocal told, raised
        if barrier.Test():
            return True
        if not told and time.monotonic() - start > FAREWELL_SECONDS:
            messages.send(how, away)
            told = True
        if away and told:
            messages.sent()
        raised = any(one.end is End.RAISED for one in ends().values())
        return raised

    def missing() -> list[int]:
        ended = {session.ranks.rank, *ends()}
        return [rank for rank in range(session.ranks.size) if rank not in ended]

    peer_wait.subject = "its end, which takes all ranks"
    peer_wait.until(over, missing)
    if raised:
        return False, False
    mine, least = array("i", [int(clean)]), array("i", [0])
    peer_wait.until_done(
        base.begin(Call.ALLREDUCE, source=mine, target=least, dtype="int32", operation="MIN")
    )
    return True, bool(least[0])


NEW: Sequence[int] = ()
"""How a process comes to the other ranks whose first session this is."""
FORKED = (
    "This process was forked from a rank after hvd.init and is not a rank itself: MPI and the memory between "
    "the ranks are its parent's. Start it before hvd.init, or as a new Python (multiprocessing's 'spawn')."
)


class Process:
    """The one session of this process, and what is left of earlier ones."""

    def __init__(self) -> None:
        """Begin without a session."""
        self.session: Session | None = None
        self._left: list[Segment] = []
        self._at_exit = False
        self._pid = 0
        self._left_alone = False
        self._interrupted = False

    def init(
        self,
        kernels: FrameworkAdapter,
        comm: Any = None,
        *,
        dynamic: bool = False,
        with_sets: bool = True,
        entry: Sequence[int] | None = None,
    ) -> None:
        """Open a session, unless there is one. See `open_session`; the ``entry`` of a new process is `NEW`.

        A new rank of an elastic job whose generation breaks meanwhile waits for the next one: `elastic.run`,
        which sees to that later, has not begun.
        """
        if self.session is not None:
            return
        if self._pid not in (0, os.getpid()) and (
            read_settings(os.environ).launched or loaded_mpi.inherited()
        ):
            raise WorldError(FORKED)
        is_new = not self._at_exit
        if is_new:
            atexit.register(self._exit)
            os.register_at_fork(after_in_child=self._forked)
            self._at_exit = True
        self._pid = os.getpid()
        while self.session is None:
            try:
                self.session = open_session(
                    kernels,
                    environ=os.environ,
                    comm=comm,
                    dynamic=dynamic,
                    with_sets=with_sets,
                    entry=NEW if is_new else entry,
                )
            except BaseException as error:
                elastic = _elastic_rank()
                member = None if elastic is None else elastic.membership
                broken = member is not None and member.broken()
                again = is_new and isinstance(error, HorovodInternalError) and broken
                _leave_generation()
                if not again:
                    raise
        self.session.timelines.begin()

    def shutdown(self, *, rejoins: bool = False) -> None:
        """Close the session, if there is one. ``rejoins``: see `close_session`."""
        session, self.session = self.session, None
        if session is not None and self._pid == os.getpid():
            self._left.extend(close_session(session, End.SHUT_DOWN, rejoins=rejoins)[1])

    def get(self) -> Session:
        """Return the session; `ValueError` where there is none."""
        if self.session is None:
            raise NotInitializedError
        return self.session

    def _forked(self) -> None:
        """In a forked child: the session is the parent's, and so are MPI and the memory between the ranks."""
        if (elastic := _elastic_rank()) is not None:
            elastic.forked()
        session = self.session
        if session is None:
            return
        alone = session.base is None
        session.timelines.forked()
        session.registry.forked("" if alone else FORKED)
        if alone:
            self._pid = os.getpid()

    def _exit(self) -> None:
        if self._pid != os.getpid():
            return
        # The interpreter keeps the exception that ended it here before handlers of exit run. Of sys.exit(5)
        # the launcher's sitecustomize tells: the launcher ends the other ranks, so they are not waited for.
        raised = getattr(sys, "last_value", None) is not None or hasattr(sys, "ringleader_exit_code")
        session, self.session = self.session, None
        if session is not None:
            try:
                together, _ = close_session(session, End.RAISED if raised else End.FINISHED)
            except Exception as error:
                # A signal's handler, such as the DataLoader's when its workers are ended; the peers know.
                text = f"ringleader: rank {session.ranks.rank} ends without the others: {error}"
                print(text, file=sys.stderr, flush=True)  # noqa: T201
                together = False
            except KeyboardInterrupt:
                # An exit handler's exception changes no exit code, but the others wait for this rank.
                together, self._interrupted = False, True
            self._left_alone = not raised and not together
            raised = raised or not together
        # A rank that raised, or was left by one, does not wait in MPI for peers that will not come.
        if not raised:
            if loaded_mpi.runs():
                free_windows_left()
            loaded_mpi.finalize()

    def leave(self) -> None:
        """Be the last exit handler. Where ranks have left this one, an interrupt becomes its end.

        The interpreter ends with the script's exit code, which no exit handler knows. Only where the script
        initialized MPI itself does mpi4py finalize it afterwards, which would wait for the other ranks: our
        launcher has reported any other code, so it is 0, and mpirun alone stops ranks that wait there.
        """
        if self._left_alone and self._pid == os.getpid() and loaded_mpi.runs():
            for stream in (sys.stdout, sys.stderr):
                with suppress(AttributeError, OSError, ValueError):
                    stream.flush()
            if self._interrupted:  # the end of a process that SIGINT ends: the launcher stops the others
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)
            if not loaded_mpi.ours() and report_fd(os.environ) is not None:
                os._exit(0)


PROCESS = Process()
"""MPI and the launcher know one job per process, so there is one holder of its session."""
atexit.register(PROCESS.leave)  # what is registered early is called late


def membership() -> Membership | None:
    """Return the present generation of an elastic job; None in any other job, and before ``init``."""
    return None if PROCESS.session is None else PROCESS.session.membership
