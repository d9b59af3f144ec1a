"""The fork server: a Python of the job that has imported what ranks need, and forks from itself.

For the host agent of an elastic job it forks rank agents, from which their ranks are forked. For rank agents
that an MPI started (``--max-restarts --warm``) it forks the ranks and stays their parent. Its interpreter
runs ``run(serve(…))`` (``fork_server_control.PROGRAM``): ``serve`` returns in a rank, and
``forked_script.run`` then runs the script. So that it can be forked safely it has one thread, and has used
neither MPI nor a GPU.
"""

from __future__ import annotations

import gc
import os
import select
import sys
import time
from functools import partial

from ringleader.agents import process_tree, start_command, unix_messages
from ringleader.agents.elastic import elastic_rank_agent
from ringleader.agents.elastic.forked_rank_agents import WATCHED
from ringleader.agents.light_imports import Any, Callable, signal, socket, suppress
from ringleader.agents.start_command import ForkedRank, NotStartedError

ANSWER_SECONDS = 1.0
"""For the first word of a rank agent that stands by, which is there at once as a rule."""
BACKLOG = 512
POLL_MILLISECONDS = 500


def serve(fd: int) -> ForkedRank:
    """Import, then fork as long as the host agent is there; return in a rank, exit where it is gone.

    ``fd``: of the socket to the host agent.
    """
    control = socket.socket(fileno=fd)
    agent = os.getppid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: None)  # meant for the host, whose agent hears it, too
    received = unix_messages.receive(control)
    if received is None:
        os._exit(0)
    names, path = [str(name) for name in received[0]["modules"]], received[0].get("socket")
    began = time.monotonic()
    failure = import_all(names)
    seconds = round(time.monotonic() - began, 3)
    gc.collect()
    gc.freeze()  # what is there now is shared with all ranks: nobody need look through it, and copy it so
    kept = process_tree.open_descriptors() - {fd}
    try:
        ranks = RankForks(control, path) if path and not failure else None
    except OSError as error:
        failure = {"why": f"{path}: {error.strerror}"}
    if failure:
        unix_messages.send(control, {"do": "failed", **failure})
        os._exit(1)
    packages = dict.fromkeys(name.partition(".")[0] for name in names)
    versions = {name: str(getattr(sys.modules[name], "__version__", "")) for name in packages}
    unix_messages.send(control, {"do": "ready", "modules": names, "seconds": seconds, "versions": versions})
    try:
        if ranks is None:
            _serve_host_agent(control, agent, kept)
        else:
            ranks.serve()
    except ForkedRank as rank:
        rank.kept = kept
        return rank.with_traceback(None)  # its frames have sockets, whose descriptors are another's by now
    os._exit(0)


# --- imports ----------------------------------------------------------------------------------------------


def import_all(names: list[str]) -> dict[str, str]:
    """Import modules; return ``why`` this process is not to be forked then, empty where it may be.

    ``module`` is the one that cannot be imported, if that is why. A private module, which only some versions
    of its package have, is left out where it does not exist.
    """
    import atexit
    from importlib import import_module

    own, imported = set(sys.modules), set[str]()
    atexit.register(_leave_modules, imported)  # the first one, so that it runs last
    for name in names:
        try:
            import_module(name)
        except BaseException as error:
            if "._" in name and isinstance(error, ModuleNotFoundError):
                continue
            return {"why": f"import {name}: {type(error).__name__}: {error}", "module": name}
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if threads := _threads_that_stay():
        words = f"importing {', '.join(names)} starts {threads} threads, which forked processes lack"
        return {"why": words}
    imported.update(set(sys.modules) - own)
    _leave_libraries()
    return {}


def _leave_modules(imported: set[str]) -> None:
    """At the end of a rank, hide from Python what was imported before the fork, so that it stays as it is.

    ``imported``: their names. To take modules apart writes to memory that the
    rank shares with us, which copies it page by page, and until then the rank's slot is not free. The
    script's own objects and modules come to their end as ever.
    """
    import ctypes

    kept = [sys.modules.pop(name) for name in imported if name in sys.modules]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


def _leave_libraries() -> None:
    """Have forked processes end right after Python has: what C libraries print is flushed, nothing else done.

    The reason is that of `_leave_modules`: with PyTorch the destructors of its libraries take 0.1 s. What the
    script loads runs its own: handlers run in the reverse order of their registration.
    """
    import ctypes

    libc = ctypes.CDLL(None)
    with suppress(AttributeError):  # a C library may lack on_exit: then all of them run
        libc.on_exit(libc._exit, None)
        libc.__cxa_atexit(libc.fflush, None, None)  # runs before it


def _threads_that_stay() -> int:
    """Return how many threads there are besides this one after a fork; libraries may end theirs for one."""
    between = os.fork()
    if between == 0:
        os._exit(0)
    os.waitpid(between, 0)
    return len(os.listdir("/proc/self/task")) - 1  # noqa: PTH208


# --- rank agents, for a host agent ------------------------------------------------------------------------


def _serve_host_agent(control: socket.socket, agent: int, kept: set[int]) -> None:
    """Fork a rank agent whenever the host agent asks, until that is gone. Raises ForkedRank in a rank."""
    standby: socket.socket | None = None
    while (received := unix_messages.receive(control)) is not None:
        order = received[0]
        if order["do"] == "standby":
            standby = _fork_standby(control, agent, kept)
            continue
        waits, standby = standby, None
        if waits is None or not _start_standby(control, waits, order):
            words = {"incarnation": order["incarnation"]}
            _fork(control, agent, words, partial(dict, order["environ"]), kept)
        if waits is not None:
            waits.close()


def _fork_standby(control: socket.socket, agent: int, kept: set[int]) -> socket.socket:
    """Fork a rank agent that waits until a rank is to be started; return the socket on which it waits."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def environ() -> dict[str, str] | None:
        unix_messages.send(theirs, {"pid": os.getpid()})
        received = unix_messages.receive(theirs)  # None where the fork server has ended
        theirs.close()
        return None if received is None else received[0]["environ"]

    _fork(control, agent, {}, environ, kept | {theirs.fileno()})
    theirs.close()
    ours.settimeout(ANSWER_SECONDS)
    return ours


def _start_standby(control: socket.socket, standby: socket.socket, order: dict[str, Any]) -> bool:
    """Have the rank agent that waits serve a rank; return False where there is none any more."""
    try:
        found = unix_messages.receive(standby)
        if found is None:
            return False
        unix_messages.send(standby, {"environ": order["environ"]})
    except OSError:
        return False
    words = {"incarnation": order["incarnation"], "pid": found[0]["pid"]}
    unix_messages.send(control, {"do": "forked", **words})
    return True


def _fork(
    control: socket.socket,
    agent: int,
    words: dict[str, Any],
    environ: Callable[[], dict[str, str] | None],
    kept: set[int],
) -> None:
    """Fork a rank agent, twice, so that it becomes the host agent's child and outlives us.

    ``words`` are in the answer; ``kept``: descriptors that it keeps.
    """
    server = os.getpid()
    try:
        if between := os.fork():
            os.waitpid(between, 0)
            return
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        pid = os.fork()
    except OSError as error:
        unix_messages.send(control, {"do": "not_forked", **words, "why": str(error.strerror)})
        if os.getpid() == server:
            return
        os._exit(1)
    if pid:
        unix_messages.send(control, {"do": "forked", **words, "pid": pid})
        os._exit(0)
    process_tree.close_all_but(kept)
    control.detach()
    os._exit(elastic_rank_agent.run(agent, environ, preloaded=True))


# --- ranks, for rank agents that an MPI started -----------------------------------------------------------


class RankForks:
    """Ranks that were forked from here, and the connections of the rank agents that asked for them.

    An agent (`fork_server_control.ForkServerClient`) sends on a Unix socket what its rank is to run, with the
    descriptors that the rank gets, and keeps the connection: ``started {pid}`` or ``not_started {why}``,
    later ``ended {status}`` return on it. Its end ends the rank.
    """

    def __init__(self, control: socket.socket, path: str) -> None:
        """Let agents come. ``control``: the host agent's socket, whose end is ours. ``path``: of our own."""
        process_tree.become_subreaper()
        self._control, self._wake = control, process_tree.wake_on_signals((signal.SIGCHLD,))
        self._sock = unix_messages.listen_at(path, backlog=BACKLOG)
        self._agents: dict[int, socket.socket] = {}
        """By their descriptors."""
        self._ranks: dict[int, socket.socket] = {}
        """Process id of a rank → its agent."""

    def serve(self) -> None:
        """Fork whenever an agent asks, until the host agent is gone. Raises ForkedRank in a rank."""
        control, listener = self._control.fileno(), self._sock.fileno()
        while True:
            poll = select.poll()
            for fd in (control, listener, self._wake, *self._agents):
                poll.register(fd, select.POLLIN)
            ready = {fd for fd, _events in poll.poll(POLL_MILLISECONDS)}
            if control in ready:
                break
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.read(self._wake, 4096)
            for fd in ready & self._agents.keys():
                self._hear(self._agents[fd])
            if listener in ready:
                self._agents.update((agent.fileno(), agent) for agent in unix_messages.accepted(self._sock))
            self._reap()
        process_tree.kill_below(os.getpid())

    def _hear(self, agent: socket.socket) -> None:
        """Fork the rank that an agent asks for, or end that of one that is gone."""
        try:
            received = unix_messages.receive(agent)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            received = None
        if received is None:
            for pid in [pid for pid, of in self._ranks.items() if of is agent]:
                process_tree.send([pid, *process_tree.below(pid)], signal.SIGKILL)
            del self._agents[agent.fileno()]
            agent.close()
            return
        command, fds = received
        try:
            pid = start_command.start(command, fds, runs_script=True)
            self._ranks[pid] = agent
            self._tell(agent, do="started", pid=pid)
        except NotStartedError as error:
            self._tell(agent, do="not_started", why=error.reason, exit_code=error.exit_code)
        except OSError as error:
            why, code = f"cannot fork: {error.strerror}", start_command.NOT_EXECUTABLE
            self._tell(agent, do="not_started", why=why, exit_code=code)
        finally:
            for fd in fds:
                with suppress(OSError):
                    os.close(fd)

    def _tell(self, agent: socket.socket, **words: Any) -> None:
        with suppress(OSError):  # one that has ended; that is heard, too
            unix_messages.send(agent, words)

    def _reap(self) -> None:
        """Tell agents of ranks that have ended; what a rank leaves behind is killed."""
        ended = process_tree.reap()
        for pid, status in ended:
            if (agent := self._ranks.pop(pid, None)) is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
                self._tell(agent, do="ended", status=status)
        if ended and not self._ranks:
            process_tree.send(process_tree.below(os.getpid()), signal.SIGKILL)
