"""Scripts written for Horovod, unchanged: ``horovod`` and all below it stand for ``ringleader``.

    ringleader run --as-horovod -n 2 python train.py    ranks of our own launcher
    python -m ringleader.alias train.py                 a process that anything else starts
    PYTHONPATH="$(python -m ringleader.alias --path)"   a whole environment
    import ringleader.alias; ringleader.alias.install() from Python, before horovod is imported

Without one of these an installed Horovod stays what it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ringleader.alias.finder import AliasFinder

__all__ = ["directory", "install"]

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
