"""Which modules a fork server imports before ranks are forked from it, by what their script imports. Pure.

Only what costs seconds and may be there when a process forks: PyTorch, NumPy and our adapter for PyTorch. The
script's own modules are left to the rank, as their code may do anything. TensorFlow, JAX and MXNet start
threads, which forked processes lack: ranks that use them start cold.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath

from ringleader.value_class import dataclass

PRELOADED = ("numpy", "torch", "torchvision")
"""Packages that are imported ahead, as a whole, where a script imports them or a part of them."""
LATE = {"torch": ("torch._dynamo",)}
"""What a package imports only when it is used: PyTorch this one with the first optimizer, for seconds."""
ADAPTER = "ringleader.torch"
"""Ours, likewise; ``horovod`` in its place means the same."""
WITH_ADAPTER = (
    ADAPTER,
    f"{ADAPTER}.elastic",
    "ringleader.engine.mpi_proxy.proxy_communicator",
    "ringleader.engine.mpi_proxy.membership",
)
"""What is imported with it: also what an elastic job's ranks import only in ``init`` and for their first
state, while all others wait for it."""
COLD = ("tensorflow", "tf_keras", "keras", "jax", "mxnet", "ringleader.tensorflow", "ringleader.keras")
"""Packages after whose import a process is not forked."""
COLD_ADAPTERS = ("ringleader.jax", "ringleader.mxnet")
MOST_FILES = 200
"""Files of the user's that are read to find out."""
_OPTIONS = ("-u", "-P")
"""Options of Python that a warm rank may have."""


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """Whether a job's ranks may be forked from a fork server, and what that imports."""

    modules: tuple[str, ...] = ()
    cold: str = ""
    """Why every rank is to start by itself; empty: they may be forked."""


def warm_start(
    command: Sequence[str], read: Callable[[str], bytes | None], *, is_python: Callable[[str], bool]
) -> WarmStart:
    """Return how the ranks of a command may start.

    ``read(path)``: the content of a file below the working directory, ``None`` where there is none.
    ``is_python(word)``: whether a command's first word is a Python (``host_answer.is_python``).
    """
    if not command or not is_python(command[0]):
        return WarmStart(cold="the command is not a Python script")
    words = list(command[1:])
    while words and words[0] in _OPTIONS:
        del words[0]
    if not words or (words[0] == "-m" and len(words) < 2):
        return WarmStart(cold="the command names no script")
    if words[0].startswith("-") and words[0] != "-m":
        return WarmStart(cold=f"{words[0]} is an option that only a separate Python has")
    path = f"{words[1].replace('.', '/')}.py" if words[0] == "-m" else words[0]
    package = f"{words[1].replace('.', '/')}/__main__.py" if words[0] == "-m" else f"{path}/__main__.py"
    start = path if read(path) is not None else package
    root = "" if words[0] == "-m" else str(PurePosixPath(start).parent)
    names = imported_names(start, "" if root == "." else root, read)
    if found := [name for name in names if _within(name, (*COLD, *COLD_ADAPTERS))]:
        package = next(one for one in (*COLD, *COLD_ADAPTERS) if _within(found[0], (one,)))
        return WarmStart(cold=f"{package} starts threads, which forked processes lack")
    return WarmStart(modules=preload(names))


def preload(names: Sequence[str]) -> tuple[str, ...]:
    """Return what to import ahead where a script imports these modules."""
    found = [name for name in PRELOADED if any(_within(one, (name,)) for one in names)]
    adapted = any(_within(one, (ADAPTER,)) for one in names)
    if adapted and "torch" not in found:
        found.append("torch")
    found += [late for name in found for late in LATE.get(name, ())]
    found += WITH_ADAPTER if adapted else ()
    return tuple(found)


def imported_names(
    path: str, root: str, read: Callable[[str], bytes | None], *, most: int = MOST_FILES
) -> tuple[str, ...]:
    """Return the names of modules that a file imports at its top level, and those files of the user's that
    it imports from ``root``, the directory that is first in ``sys.path``; in the order in which they are met.
    """
    found: dict[str, None] = {}
    waiting, seen = [path], {path}
    while waiting and len(seen) <= most:
        source = read(waiting[0])
        for name in _imports(source or b"", _package(waiting.pop(0), root)):
            found.setdefault(_ours(name))
            for file in _files(name, root):
                if file not in seen and read(file) is not None:
                    seen.add(file)
                    waiting.append(file)
    return tuple(found)


def _within(name: str, packages: Sequence[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _ours(name: str) -> str:
    """Return a module's name with ours in the place of Horovod's, whose names are ours in ranks."""
    return f"ringleader{name[len('horovod') :]}" if _within(name, ("horovod",)) else name


def _package(path: str, root: str) -> str:
    """Return the package that a file's relative imports begin at."""
    below = path[len(root) + 1 :] if root and path.startswith(f"{root}/") else path
    return ".".join(PurePosixPath(below).parent.parts)


def _files(name: str, root: str) -> list[str]:
    """Return where the user's files of a module, and of the packages that it is in, would be."""
    parts = name.split(".")
    places = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    before = f"{root}/" if root else ""
    return [f"{before}{place}{end}" for place in places for end in (".py", "/__init__.py")]


def _imports(source: bytes, package: str) -> Iterator[str]:
    """Yield what a source imports outside of functions; nothing where it is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            yield from (f"{base}.{alias.name}" if alias.name != "*" else base for alias in node.names)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting[:0] = ast.iter_child_nodes(node)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """Return the module that a ``from … import`` names, relative ones too."""
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])
