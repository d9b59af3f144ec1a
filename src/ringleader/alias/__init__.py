"""Scripts written for Horovod, unchanged: ``horovod`` and all below it stand for ``ringleader``.

    ringleader run --as-horovod -n 2 python train.py    ranks of our own launcher
    python -m ringleader.alias train.py                 a process that anything else starts
    PYTHONPATH="$(python -m ringleader.alias --path)"   a whole environment
    import ringleader.alias; ringleader.alias.install() from Python, before horovod is imported

Without one of these an installed Horovod stays what it is. ``horovod.torch`` is the module object
``ringleader.torch``: with ``sys.modules["horovod"] = ringleader`` alone, ``import horovod.torch`` would
find the file of ``ringleader/torch`` and load it again, with handles, engine and exceptions of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import cast

__all__ = ["AliasFinder", "directory", "install"]

ALIAS = "horovod"
REAL = "ringleader"


def install() -> AliasFinder:
    """Let ``import horovod…`` give the modules of ``ringleader`` in this process from now on.

    May be called again. ImportError where another package of that name is loaded already: its functions
    would live on beside ours.
    """
    for finder in sys.meta_path:
        if isinstance(finder, AliasFinder) and ALIAS in finder.names:
            return finder
    loaded = sys.modules.get(ALIAS)
    if loaded is not None and loaded is not sys.modules.get(REAL):
        place = getattr(loaded, "__file__", None) or "memory"
        raise ImportError(
            f"{ALIAS} is loaded already, from {place}; install the alias before anything imports {ALIAS}"
        )
    made = AliasFinder({ALIAS: REAL})
    sys.meta_path.insert(0, made)
    return made


def directory() -> str:
    """Return the directory to put in PYTHONPATH: in it lies a package that makes itself the alias."""
    return str(Path(__file__).parent / "on_path")


class SameModule(InspectLoader):
    """Loads a module by handing out the one that is there under another name."""

    def __init__(self, real: ModuleSpec) -> None:
        """``real`` is what the import system found under the other name."""
        self._real = real
        self._own = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the other module; the import system enters it under the new name."""
        module = importlib.import_module(self._real.name)
        self._own = module.__spec__ or self._real
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own description back.

        The import system has just put the new name's there, by which ``importlib.reload`` would go.
        """
        module.__spec__ = self._own

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the module's code, which ``python -m`` runs as ``__main__``."""
        return cast("InspectLoader", self._real.loader).get_code(self._real.name)

    def get_source(self, fullname: str) -> str | None:
        """Return the module's text."""
        return cast("InspectLoader", self._real.loader).get_source(self._real.name)

    def is_package(self, fullname: str) -> bool:
        """Return whether modules may lie below it."""
        return self._real.submodule_search_locations is not None


class AliasFinder(MetaPathFinder):
    """Answers for some names and everything below them, and for nothing else."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """``names``: alias → the module it stands for, which is imported only when a script asks for it."""
        self.names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how a name under an alias is loaded; ModuleNotFoundError where there is no such module."""
        alias, rest = fullname, ""
        while alias not in self.names:
            alias, dot, last = alias.rpartition(".")
            if not dot:
                return None
            rest = f".{last}{rest}"
        found = importlib.util.find_spec(self.names[alias] + rest)
        if found is None:
            if "." in alias:
                return None  # a name within a package of ours, for which nobody else answers
            # None would let the next finder answer, perhaps with another package of the alias's name.
            raise ModuleNotFoundError(_missing(alias, self.names[alias], rest[1:]), name=fullname)
        spec = ModuleSpec(fullname, SameModule(found), origin=found.origin)
        spec.submodule_search_locations = found.submodule_search_locations
        spec.cached = found.cached
        spec.has_location = found.has_location
        return spec


def _missing(alias: str, real: str, rest: str) -> str:
    what = f"No module named {alias + (rest and '.') + rest!r}"
    if not rest:
        return f"{what}: it stands for {real!r} here, which is not installed for {sys.executable}"
    return f"{what}: {alias!r} stands for {real!r} here, which does not offer {rest!r} yet"
