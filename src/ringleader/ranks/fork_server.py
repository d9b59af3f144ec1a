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

from ringleader.ranks import elastic_rank_agent, unix_messages
from ringleader.ranks.fast_stdlib import signal, socket, suppress
from ringleader.ranks.fork_server_process import CONTROL_FD
from ringleader.ranks.host_agent_signals import WATCHED
from ringleader.ranks.open_descriptors import close_all_but, open_descriptors
from ringleader.ranks.rank_process_start import WarmRank

TYPE_CHECKING = False  # see fast_stdlib.py
if TYPE_CHECKING:
    from typing import Any


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
    _import(control, unix_messages.receive(control))
    gc.collect()
    gc.freeze()  # what is there now is shared with all ranks: nobody need look through it, and copy it so
    kept = open_descriptors() - {CONTROL_FD}
    try:
        while (received := unix_messages.receive(control)) is not None:
            _fork(control, agent, received[0], kept)
    except WarmRank as rank:
        argv, env, report = rank.argv, rank.env, rank.report
    else:
        os._exit(0)
    return ForkedRank(argv=argv, env=env, report=report, kept=kept)


def _import(control: socket.socket, order: tuple[dict[str, Any], list[int]] | None) -> None:
    """Import the modules of the order and say how it went; a module that cannot be imported is an end."""
    began = time.monotonic()
    names = [str(name) for name in order[0]["modules"]] if order is not None else []
    if failure := import_all(names):
        unix_messages.send(control, {"do": "failed", **failure})
        os._exit(1)
    seconds = round(time.monotonic() - began, 3)
    versions = {name: _version(name) for name in dict.fromkeys(one.partition(".")[0] for one in names)}
    unix_messages.send(control, {"do": "ready", "modules": names, "seconds": seconds, "versions": versions})


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


def _fork(control: socket.socket, agent: int, order: dict[str, Any], kept: set[int]) -> None:
    """Fork a rank agent, twice, so that it becomes the host agent's child and outlives us."""
    incarnation = order["incarnation"]
    try:
        between = os.fork()
    except OSError as error:
        words = {"do": "not_forked", "incarnation": incarnation, "why": str(error.strerror)}
        unix_messages.send(control, words)
        return
    if between:
        os.waitpid(between, 0)
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    try:
        pid = os.fork()
    except OSError as error:
        words = {"do": "not_forked", "incarnation": incarnation, "why": str(error.strerror)}
        unix_messages.send(control, words)
        os._exit(1)
    if pid:
        unix_messages.send(control, {"do": "forked", "incarnation": incarnation, "pid": pid})
        os._exit(0)
    close_all_but(kept)
    control.detach()
    os._exit(elastic_rank_agent.run(agent, order["environ"], preloaded=True))
