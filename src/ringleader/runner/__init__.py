"""Horovod's launcher, by its paths: the command ``horovodrun``, `run`, and what scripts import beside them.

`launch` is the command; `option_table` its options, `command_line` and `common.util.config_parser` read them,
`job_request` makes a job of them. Names are Horovod's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any


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
