"""Runs in every Python of a rank before the script: SIGQUIT prints all threads' stacks on standard error, and
the end of a script by an exception is reported at once. With ``--as-horovod`` the name ``horovod`` stands for
``ringleader``.

It comes first in PYTHONPATH, so the environment's own ``sitecustomize`` is looked up behind it and run.
"""

from __future__ import annotations

import _thread
import atexit
import faulthandler
import os
import signal
import sys

TYPE_CHECKING = False  # typing's import would cost every Python of a rank more than all of this file
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, NoReturn

EXIT_CODE = "ringleader_exit_code"
"""Attribute of ``sys`` that exit handlers find where the script has ended with an exit code other than 0."""
INTERRUPTED = 128 + signal.SIGINT
"""Exit code, as a shell gives it, of a Python that an uncaught KeyboardInterrupt ended."""


def _run_next() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = __file__.rpartition("/")[0]
    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if entry != here])
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class _Alias:
    """Stands in for ``ringleader.alias`` until a script imports ``horovod``; most processes never do."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != "horovod":
            return None
        try:
            from ringleader.alias import install
        except ModuleNotFoundError as error:
            text = f"--as-horovod: horovod stands for ringleader, which {sys.executable} does not have"
            raise ModuleNotFoundError(text, name=name) from error
        # In front of us from now on, so this is the last question that comes here.
        return install().find_spec(name, path, target)


class _ScriptEnd:
    """Tells the agent as soon as an exception leaves the script: what follows may wait for the other ranks.

    Exit handlers run, then mpi4py finalizes MPI, which waits for all ranks, and these wait for this one.
    """

    def __init__(self, fd: int) -> None:
        """``fd`` is the report pipe, which the script may close and use its number for something else."""
        self._fd = fd
        self._pipe = os.fstat(fd).st_ino
        self._pid = os.getpid()
        self._thread = _thread.get_ident()
        self._code = 0
        self._over = False
        sys.addaudithook(self._audit)
        atexit.register(self._leave)  # the first registered is the last called

    def tell(self, code: int) -> None:
        """Tell the agent that the script has ended with an exit code other than 0; warn of one that became 0.

        Called where an exception may have left the script: it has where no frame of Python's is left.
        """
        left = sys._getframe(1).f_back is None and _thread.get_ident() == self._thread
        if not left or self._over or self._code or os.getpid() != self._pid:  # a forked child is not the rank
            return
        if not code:
            os.write(2, b"ringleader: sys.exit(256) and its multiples are exit code 0: a code has 8 bits\n")
            return
        self._code = code
        sys.__dict__[EXIT_CODE] = code
        try:
            if os.fstat(self._fd).st_ino == self._pipe:
                os.write(self._fd, b'{"kind":"failing","pid":%d,"exit_code":%d}\n' % (self._pid, code))
        except OSError:
            pass

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        # An audit hook and no sys.excepthook, which belongs to the script.
        if event == "sys.excepthook":
            self.tell(INTERRUPTED if issubclass(args[1], KeyboardInterrupt) else 1)

    def _leave(self) -> None:
        """Every exit handler has been called: leave without MPI_Finalize where the others will not come."""
        self._over = True
        if not self._code or os.getpid() != self._pid or not _mpi_waits():
            return
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):
                continue  # closed, or nobody reads it
        if self._code == INTERRUPTED:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(self._pid, signal.SIGINT)
        os._exit(self._code)


def _mpi_waits() -> bool:
    """Say whether mpi4py will end MPI once Python is over.

    Its import initializes MPI, and one that a signal interrupts after that leaves no module behind to ask.
    """
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None:
        return "mpi4py" in sys.modules
    return mpi.Is_initialized() and not mpi.Is_finalized()


class _Status(int):
    """An exit code that notices when it is dropped, which an uncaught SystemExit does outside every frame."""

    def __del__(self) -> None:
        if _end is not None and self:
            _end.tell(self & 0xFF)


class _Message(str):
    """The same for ``sys.exit("words")``, whose exit code is 1."""

    __slots__ = ()

    def __del__(self) -> None:
        if _end is not None:
            _end.tell(1)


def _exit(status: Any = None, /) -> NoReturn:
    """Exit the interpreter by raising SystemExit(status)."""
    if isinstance(status, int):
        status = _Status(status)
    elif isinstance(status, str):
        status = _Message(status)
    raise SystemExit(status)


def _watch_end() -> _ScriptEnd | None:
    try:
        found = _ScriptEnd(int(os.environ["RINGLEADER_REPORT_FD"]))
    except (KeyError, ValueError, OSError):  # a Python that was started with its descriptors closed
        return None
    _exit.__name__ = _exit.__qualname__ = "exit"
    _exit.__module__ = "sys"
    sys.exit = _exit
    return found


def _pass_on_notices() -> None:
    """Have SIGTERM to a rank of an elastic job tell its host agent that this host is to leave.

    Where the rank's own agent means it as the end, it has said so in the status file. For the rank's own
    process alone, and until the script has its own handler: whoever it starts ends as ever.
    """
    try:
        agent, host_agent = (
            int(os.environ["RINGLEADER_RANK_AGENT_PID"]),
            int(os.environ["RINGLEADER_HOST_AGENT_PID"]),
        )
    except (KeyError, ValueError):
        return
    ours, status = os.getpid(), os.environ.get("RINGLEADER_STATUS_FILE", "")

    def told(number: int, _frame: object) -> None:
        try:
            with open(status, "rb") as file:  # noqa: PTH123 - pathlib costs every Python of a rank 5 ms
                stopped = b'"kind":"stop"' in file.read()
            if os.getpid() == ours and os.getppid() == agent and not stopped:
                os.kill(host_agent, signal.SIGUSR1)
                return
        except OSError:
            pass  # the agent is gone, or the file is
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    if os.getppid() == agent:
        signal.signal(signal.SIGTERM, told)


_end = _watch_end()
_pass_on_notices()
if os.environ.get("RINGLEADER_AS_HOROVOD") == "1":
    sys.meta_path.insert(0, _Alias)
if sys.stderr is not None:
    faulthandler.register(signal.SIGQUIT, all_threads=True)
if __name__ == "sitecustomize":  # a rank that was forked from a Python has had the environment's own
    _run_next()
