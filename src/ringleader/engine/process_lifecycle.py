"""The session of this process: opened by ``init``, closed by ``shutdown`` or at exit; never a child's."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ringleader.agents.training_progress import Reporter, report_fd
from ringleader.engine import mpi_library
from ringleader.engine.communicator import Segment
from ringleader.engine.engine_settings import read_settings
from ringleader.engine.exceptions import HorovodInternalError, NotInitializedError, WorldError
from ringleader.engine.framework_adapter import FrameworkAdapter
from ringleader.engine.liveness import End
from ringleader.engine.mpi_communicator import free_windows_left
from ringleader.engine.session import Session, is_broken, leave_generation, open_session
from ringleader.engine.traffic import as_report


def close_session(session: Session, how: End, *, rejoins: bool = False) -> tuple[bool, list[Segment]]:
    """End a session; return whether all peers took part, and shared memory that arrays still look at.

    ``rejoins``: in an elastic job this rank leaves for the next generation, and so do the others.
    """
    session.at_shutdown.call()
    clean = session.registry.close(
        why=f"Horovod has been shut down: rank {session.ranks.rank} called hvd.shutdown() or ended."
    )
    session.timelines.stop()
    elastic = session.membership is not None
    if session.traffic:
        Reporter(report_fd(os.environ)).write(as_report(session.traffic))
    if session.shutdown_barrier is None:
        return True, []
    if elastic and (rejoins or session.membership.broken()):
        # Some rank will never come, or all are on their way to the next generation, where they meet. What
        # this one has is its own, so nothing of it is given back.
        left = session.registry.free(together=False)
        leave_generation()
        return how is End.SHUT_DOWN, left
    together, give_back = session.shutdown_barrier.meet(how, session.group.flags, clean=clean)
    left = session.registry.free(together=give_back)
    if give_back:
        if session.deadlock_check is not None:
            session.deadlock_check.drain()
        session.shutdown_barrier.free()
    if how is not End.RAISED:  # then its end is to be noticed
        leave_generation()
    return together, left


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
            read_settings(os.environ).launched or mpi_library.inherited()
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
                again = is_new and isinstance(error, HorovodInternalError) and is_broken()
                leave_generation()
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
        session = self.session
        if session is None:
            return
        alone = session.shutdown_barrier is None
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
            if mpi_library.runs():
                free_windows_left()
            mpi_library.finalize()

    def leave(self) -> None:
        """Be the last exit handler. Where ranks have left this one, an interrupt becomes its end.

        The interpreter ends with the script's exit code, which no exit handler knows. Only where the script
        initialised MPI itself does mpi4py finalize it afterwards, which would wait for the other ranks: our
        launcher has reported any other code, so it is 0, and mpirun alone stops ranks that wait there.
        """
        if self._left_alone and self._pid == os.getpid() and mpi_library.runs():
            for stream in (sys.stdout, sys.stderr):
                with suppress(AttributeError, OSError, ValueError):
                    stream.flush()
            if self._interrupted:  # the end of a process that SIGINT ends: the launcher stops the others
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)
            if not mpi_library.ours() and report_fd(os.environ) is not None:
                os._exit(0)


PROCESS = Process()
"""MPI and the launcher know one job per process, so there is one holder of its session."""
atexit.register(PROCESS.leave)  # what is registered early is called late
