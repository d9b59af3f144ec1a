"""The fork server: a Python of the job that has imported what ranks need, and forks rank agents from itself.

Its interpreter runs ``run(serve())`` (``fork_server_process.PROGRAM``): ``serve`` returns in a rank that was
forked from a rank agent that was forked from here, and ``warm_rank.run`` then runs the script. So that it can
be forked safely it has one thread, and has used neither MPI nor a GPU.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from functools import partial

from ringleader.agents import unix_messages
from ringleader.agents.elastic import elastic_rank_agent
from ringleader.agents.elastic.rank_agents import WATCHED
from ringleader.agents.fast_stdlib import signal, socket, suppress
from ringleader.agents.fork_server_process import CONTROL_FD
from ringleader.agents.process_tree import close_all_but, open_descriptors
from ringleader.agents.rank_process_start import WarmRank

TYPE_CHECKING = False  # see fast_stdlib.py
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn


ANSWER_SECONDS = 1.0
"""For the first word of a rank agent that stands by, which is there at once as a rule."""


class ForkedRank:
    """A rank that was forked warm: what it is to run, and what it must not close."""

    def __init__(self, *, argv: tuple[str, ...], env: dict[str, str], report: int, kept: set[int]) -> None:
        """``report``: its report pipe. ``kept``: descriptors that imported libraries opened."""
        self.argv = argv
        self.env = env
        self.report = report
        self.kept = kept


def serve() -> ForkedRank:
    """Import, then fork whenever the host agent asks; return in a rank, exit where the agent is gone."""
    control = socket.socket(fileno=CONTROL_FD)
    agent = os.getppid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: None)  # meant for the host, whose agent hears it, too
    received = unix_messages.receive(control)
    if received is None:
        os._exit(0)
    order = received[0]
    ready = _import(control, [str(name) for name in order["modules"]])
    gc.collect()
    gc.freeze()  # what is there now is shared with all ranks: nobody need look through it, and copy it so
    kept = open_descriptors() - {CONTROL_FD}
    try:
        if "socket" in order:
            from ringleader.agents.warm_rank_server import WarmRankServer

            try:
                server = WarmRankServer(control, order["socket"])
            except OSError as error:
                _fail(control, {"why": f"{order['socket']}: {error.strerror}"})
            unix_messages.send(control, ready)
            server.serve()
        else:
            unix_messages.send(control, ready)
            _serve_host_agent(control, agent, kept)
    except WarmRank as rank:
        return ForkedRank(argv=rank.argv, env=rank.env, report=rank.report, kept=kept)
    os._exit(0)


def _serve_host_agent(control: socket.socket, agent: int, kept: set[int]) -> None:
    """Fork a rank agent whenever the host agent asks, until that is gone. Raises WarmRank in a rank."""
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


def _import(control: socket.socket, names: list[str]) -> dict[str, Any]:
    """Import modules and return the message ``ready``; one that cannot be imported is an end."""
    began = time.monotonic()
    if failure := import_all(names):
        _fail(control, failure)
    seconds = round(time.monotonic() - began, 3)
    versions = {name: _version(name) for name in dict.fromkeys(one.partition(".")[0] for one in names)}
    return {"do": "ready", "modules": names, "seconds": seconds, "versions": versions}


def _fail(control: socket.socket, failure: dict[str, str]) -> NoReturn:
    """Say why nothing can be forked from here, and end."""
    unix_messages.send(control, {"do": "failed", **failure})
    os._exit(1)


def import_all(names: list[str]) -> dict[str, str]:
    """Import modules; return ``why`` this process is not to be forked then, empty where it may be.

    ``module`` is the one that cannot be imported, if that is why. A private module, which only some versions
    of its package have, is left out where it is not there.
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
    rank shares with us, which copies it page by page, and so long the rank's slot is not free. The script's
    own objects and modules come to their end as ever.
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


def _version(name: str) -> str:
    return str(getattr(sys.modules[name], "__version__", ""))


def _threads_that_stay() -> int:
    """Return how many threads there are besides this one after a fork; libraries may end theirs for one."""
    between = os.fork()
    if between == 0:
        os._exit(0)
    os.waitpid(between, 0)
    return len(os.listdir("/proc/self/task")) - 1  # noqa: PTH208


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
    pid = found[0]["pid"]
    unix_messages.send(control, {"do": "forked", "incarnation": order["incarnation"], "pid": pid})
    return True


def _fork(
    control: socket.socket,
    agent: int,
    words: dict[str, Any],
    environ: Callable[[], dict[str, str] | None],
    kept: set[int],
) -> None:
    """Fork a rank agent, twice, so that it becomes the host agent's child and outlives us.

    ``words`` stand in the answer; ``kept``: descriptors that it keeps.
    """
    try:
        between = os.fork()
    except OSError as error:
        unix_messages.send(control, {"do": "not_forked", **words, "why": str(error.strerror)})
        return
    if between:
        os.waitpid(between, 0)
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    try:
        pid = os.fork()
    except OSError as error:
        unix_messages.send(control, {"do": "not_forked", **words, "why": str(error.strerror)})
        os._exit(1)
    if pid:
        unix_messages.send(control, {"do": "forked", **words, "pid": pid})
        os._exit(0)
    close_all_but(kept)
    control.detach()
    os._exit(elastic_rank_agent.run(agent, environ, preloaded=True))
