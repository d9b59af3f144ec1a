"""Runs in every Python of a rank before the script: SIGQUIT writes all threads' stacks to standard error, a
signal of the agent's writes them where it reads them, and the end of a script by an exception is reported at
once. With ``--as-horovod`` the name ``horovod`` stands for ``ringleader``. What the script does with a
framework is watched by ``script_watch``.

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
ASKED = signal.SIGRTMAX - 3
"""The agent's request for stacks; `process_tree` has the same number."""
STACKS = "ringleader-stacks"
"""Name of the file in memory that takes the stacks: the agent finds it by that in /proc."""
WATCHED = frozenset(
    (
        "torch.optim.optimizer",
        "torch.distributed.distributed_c10d",
        "keras.src.callbacks.callback_list",
        "keras.src.optimizers.base_optimizer",
        "optax._src.update",
    )
)
"""Modules that ``script_watch`` knows, which is loaded with the first of them."""
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


class _Watched:
    """The first of the finders: once a module of `WATCHED` is imported, it is watched."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in WATCHED:
            return None
        for finder in sys.meta_path:
            find = None if finder is _Watched else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(name, path, target)
            if spec is not None:
                try:  # noqa: SIM105 - contextlib's import would cost every Python of a rank more
                    _watch_after(spec.loader)
                except Exception:  # a loader of another kind: its module is not watched
                    pass
                return spec
        return None


def _watch_after(loader: Any) -> None:
    """Have a loader's module watched once it is loaded."""
    if isinstance(loader, type):
        return
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        loader.__dict__.pop("exec_module", None)
        execute(module)
        _watch(module)

    loader.exec_module = exec_module


def _watch(module: ModuleType) -> None:
    """Watch what the script does with a framework; nothing of that may fail the script."""
    if _end is None or not _end.is_ours():
        return
    try:
        if (watch := _end.watch) is None:
            agents = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
            progress = _loaded("ringleader_training_progress", f"{agents}/training_progress.py")
            status = os.environ.get("RINGLEADER_STATUS_FILE", "")
            watch = _loaded("ringleader_script_watch", f"{agents}/script_watch.py").Watch(
                progress, _end.write, status
            )
            _end.watch = watch
            if wanted := os.environ.pop("RINGLEADER_PROFILE", ""):  # not for a job that the script starts
                recording = _loaded("ringleader_step_profile", f"{agents}/step_profile.py")
                recording.attach(watch, wanted, os.environ["RINGLEADER_PROFILE_FILE"])
        watch.begin(module)
    except Exception:  # of another version than those known: what it does stays unknown
        _end.write(b'{"kind":"unwatched","module":"%b"}\n' % module.__name__.encode())


def _loaded(name: str, path: str) -> Any:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
        self.watch: Any = None
        sys.addaudithook(self._audit)
        atexit.register(self._leave)  # the first registered is the last called

    def is_ours(self) -> bool:
        """Say whether this is the rank's own process, which has the pipe still: a child may have forked."""
        try:
            return os.getpid() == self._pid and os.fstat(self._fd).st_ino == self._pipe
        except OSError:
            return False

    def write(self, line: bytes) -> None:
        """Write a line to the report pipe."""
        try:
            if self.is_ours():
                os.write(self._fd, line)
        except OSError:
            pass

    def tell(self, code: int, traceback: object = None) -> None:
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
        self.write(b'{"kind":"failing","pid":%d,"exit_code":%d}\n' % (self._pid, code))
        if self.watch is not None:
            self.watch.record(traceback)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        # An audit hook and no sys.excepthook, which belongs to the script.
        if event == "sys.excepthook":
            self.tell(INTERRUPTED if issubclass(args[1], KeyboardInterrupt) else 1, args[3])

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


def _stacks_file() -> int:
    """Open a file that takes stacks: in memory or, where Python or its kernel has no such, without a name."""
    try:
        return os.memfd_create(STACKS)
    except (AttributeError, OSError):  # built for a glibc before 2.27, or seccomp refuses it
        status = os.environ.get("RINGLEADER_STATUS_FILE", "")
        path = f"{os.path.dirname(status)}/{STACKS}.{os.getpid()}"  # noqa: PTH120
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(path)  # noqa: PTH108
        return fd


def _show_stacks() -> None:
    """Have the agent's signal write the stacks of all threads into a file in memory, which needs no name.

    A child that is forked gets its own. The agent sends the signal only while that file is open here. Whoever
    sends SIGQUIT gets the stacks on the rank's standard error: it ends no rank.
    """
    fd = inode = -1

    def take() -> None:
        nonlocal fd, inode
        try:
            if fd >= 0 and os.fstat(fd).st_ino == inode:
                os.close(fd)
            fd = _stacks_file()
            inode = os.fstat(fd).st_ino
            faulthandler.register(ASKED, file=fd, all_threads=True)
        except (OSError, RuntimeError):
            fd = inode = -1

    try:  # noqa: SIM105
        faulthandler.register(signal.SIGQUIT, file=2, all_threads=True)
    except (OSError, RuntimeError):
        pass
    take()
    os.register_at_fork(after_in_child=take)


_end = _watch_end()
_pass_on_notices()
if os.environ.get("RINGLEADER_AS_HOROVOD") == "1":
    sys.meta_path.insert(0, _Alias)
_show_stacks()
if _end is not None and os.environ.get("RINGLEADER_WATCH") != "0":
    sys.meta_path.insert(0, _Watched)
    for _name in WATCHED & sys.modules.keys():  # of the Python that a rank was forked from
        _watch(sys.modules[_name])
if __name__ == "sitecustomize":  # a rank that was forked from a Python has had the environment's own
    _run_next()
