"""Horovod's launcher, by its paths: the command ``horovodrun``, `run`, and what scripts import beside them.

`launch` is the command; `option_table` has its options, `command_line` reads them, `job_request` makes a job
of them. `settings`, `hosts` and `shell_commands` are small parts of Horovod's that scripts import. Horovod's
packages below this one stand for this one, and its modules for those here. Names are Horovod's.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from ringleader.alias.finder import AliasFinder

MODULES = {
    "": ("common", "common.util", "elastic", "util"),
    ".command_line": ("common.util.config_parser",),
    ".hosts": ("common.util.hosts", "common.util.host_hash", "elastic.discovery", "elastic.worker"),
    ".launch": ("gloo_run", "mpi_run"),
    ".settings": (
        *(f"common.util.{name}" for name in ("codec", "env", "secret", "settings", "timeout")),
        *(f"elastic.{name}" for name in ("constants", "driver", "settings")),
    ),
    ".shell_commands": ("common.util.safe_shell_exec", "util.threads"),
    ".tiny_shell_exec": ("common.util.tiny_shell_exec",),
}
"""Module, below this package → the paths by which Horovod has it."""

sys.meta_path.insert(
    0, AliasFinder({f"{__name__}.{path}": __name__ + own for own, paths in MODULES.items() for path in paths})
)


class _HorovodArgs:
    """Options of a job as attributes, for scripts that hand them to ``launch._run``."""

    def __init__(self) -> None:
        """Begin with one process and nothing else said."""
        from ringleader.runner.option_table import OPTIONS

        vars(self).update(dict.fromkeys(OPTIONS), num_proc=1, command=None, run_func=None, executable=None)


def __getattr__(name: str) -> Any:
    """Return ``run``, which is `ringleader.run` with every call Horovod's; it is imported when asked for."""
    if name != "run":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return _run()


@cache
def _run() -> Callable[..., Any]:
    from ringleader.api import run
    from ringleader.horovod_run import accepts_horovod

    return accepts_horovod(inspect.unwrap(run), always=True)
