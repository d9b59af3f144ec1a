"""A script in a process that was forked from the fork server, as if a fresh Python ran it.

Same ``__main__``, ``sys.argv``, ``sys.path``, environment, signals, tracebacks, exit handlers and exit codes:
the interpreter itself ends as it would after ``python script``, as this is all that it still has to run. Only
what was imported before the fork is not taken apart (`fork_server`).
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType, TracebackType

from ringleader.agents.light_imports import Any, signal
from ringleader.agents.process_tree import close_all_but
from ringleader.agents.start_command import ForkedRank

NOT_OPENED = 2
"""Exit code, as Python's own, where the script cannot be read."""
OPENBLAS_NAMES = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)
"""What a build of OpenBLAS may call the function that sets its threads."""
OPTIONS = ("-u", "-P")
"""Options of Python that a forked rank may have. Ranks write unbuffered anyhow; ``-P``: nothing is added to
``sys.path`` for the script."""


def run(rank: ForkedRank, added: list[str]) -> None:
    """Become the rank's Python and run its script. Whatever leaves the script leaves this, too.

    ``added``: entries of ``sys.path`` that only the fork server needed.
    """
    close_all_but({rank.report, *rank.kept})
    os.environ.clear()
    os.environ.update(rank.env)
    _fresh_signals()
    _fresh_randomness()
    _fresh_thread_counts()
    _startup()
    sys.path[:] = [entry for entry in sys.path if entry not in added]
    words, safe = list(rank.argv[1:]), sys.flags.safe_path
    while words[0] in OPTIONS:
        safe |= words.pop(0) == "-P"
    sys.orig_argv = [sys.executable, *rank.argv[1:]]
    try:
        if words[0] == "-m":
            _run_module(words[1], words[2:], safe=safe)
        else:
            _run_script(words[0], words[1:], safe=safe)
    except SystemExit:
        raise
    except BaseException as error:
        _hide_us(error)
        raise


def _fresh_signals() -> None:
    """Give signals the dispositions that Python has at its start."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _fresh_randomness() -> None:
    """Draw again what a Python draws at its start: ``random`` does it by itself."""
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:  # else the script imports it, if it does
        numpy.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.current_process().authkey = os.urandom(32)


def _fresh_thread_counts() -> None:
    """Have libraries take the threads that this rank is given: at their import they were to have one."""
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    threads = int(given) if given.isdigit() and int(given) else len(os.sched_getaffinity(0))
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    if "numpy" in sys.modules:
        _set_openblas_threads(threads)


def _set_openblas_threads(threads: int) -> None:
    """Tell the OpenBLAS that NumPy brings, whose functions have a prefix and a suffix in some builds."""
    import ctypes

    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        mapped = {line.split(None, 5)[-1].strip() for line in file if "openblas" in line}
    for path in mapped:
        library = ctypes.CDLL(path)
        for name in OPENBLAS_NAMES:
            function = getattr(library, name, None)
            if function is not None:
                function(threads)
                break


def _startup() -> None:
    """Run what every Python of a rank runs before its script (``python_startup``)."""
    directory = os.path.join(os.path.dirname(os.path.abspath(__file__)), "python_startup")  # noqa: PTH100, PTH118, PTH120
    spec = spec_from_file_location("ringleader_rank_startup", f"{directory}/sitecustomize.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    if directory not in sys.path:
        sys.path.insert(0, directory)  # as PYTHONPATH, which names it, would have it


def _main_module() -> dict[str, Any]:
    """Make a new ``__main__`` and return its names; the old one stays, as its code still runs."""
    import builtins

    main = ModuleType("__main__")
    sys.modules["ringleader_fork_server"] = sys.modules["__main__"]
    sys.modules["__main__"] = main
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    return main.__dict__


def _run_script(script: str, arguments: list[str], *, safe: bool) -> None:
    """Run a file, or a directory or archive that has a ``__main__.py``."""
    sys.argv = [script, *arguments]
    names = _main_module()
    path = os.path.abspath(script)  # noqa: PTH100
    if os.path.isdir(script) or _is_archive(script):  # noqa: PTH112
        import runpy

        sys.path.insert(0, path)
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]  # as Python itself does
        return
    if not safe:
        sys.path.insert(0, os.path.dirname(os.path.realpath(script)))  # noqa: PTH120
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            source = file.read()
    except OSError as error:
        words = f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}"
        print(words, file=sys.stderr)  # noqa: T201 - Python's own words
        sys.exit(NOT_OPENED)
    names.update(__file__=path, __loader__=SourceFileLoader("__main__", path), __cached__=None)
    exec(compile(source, path, "exec", dont_inherit=True), names)


def _is_archive(script: str) -> bool:
    if script.endswith(".py"):
        return False
    import zipimport

    try:
        zipimport.zipimporter(script)
    except zipimport.ZipImportError:
        return False
    return True


def _run_module(module: str, arguments: list[str], *, safe: bool) -> None:
    """Run ``python -m``."""
    import runpy

    sys.argv = ["-m", *arguments]
    _main_module()
    if not safe:
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    runpy._run_module_as_main(module)  # type: ignore[attr-defined]  # as Python itself does


def _hide_us(error: BaseException) -> None:
    """Have the traceback begin in the script, whoever prints it: that is done when all of us has ended."""
    show = sys.excepthook
    found = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename == __file__:
        found = found.tb_next

    def excepthook(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        sys.excepthook = show
        value.__traceback__ = found
        show(kind, value, found)

    sys.excepthook = excepthook
