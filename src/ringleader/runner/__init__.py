"""Horovod's launcher, by its paths: the command ``horovodrun``, `run`, and what scripts import beside them.

`launch` is the command; `option_table` has its options, `command_line` reads them, `job_request` makes a job
of them. `settings`, `hosts` and `shell_commands` are small parts of Horovod's that scripts import.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from ringleader.alias import AliasFinder

MODULES = {
    "": ("common", "elastic", "util"),
    ".command_line": ("config_parser",),
    ".hosts": ("discovery", "host_hash", "worker"),
    ".launch": ("gloo_run", "mpi_run"),
    ".settings": ("codec", "constants", "driver", "env", "secret", "timeout"),
    ".shell_commands": ("safe_shell_exec", "threads"),
}
"""This package and modules of it → names of Horovod's that stand for them.

``runner.common.util.codec`` is ``runner.util.codec``, that is ``runner.codec``, and that is ``settings``.
"""

sys.meta_path.insert(
    0, AliasFinder({f"{__name__}.{name}": __name__ + own for own, names in MODULES.items() for name in names})
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
