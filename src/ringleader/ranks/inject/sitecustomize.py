"""Runs in every Python of a rank before the script: SIGQUIT prints all threads' stacks on standard error.
With ``--as-horovod`` the name ``horovod`` stands for ``ringleader``.

It stands in front of PYTHONPATH, so the environment's own ``sitecustomize`` is looked up behind it and run.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys

TYPE_CHECKING = False  # typing's import would cost every Python of a rank more than all of this file
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


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


if os.environ.get("RINGLEADER_AS_HOROVOD") == "1":
    sys.meta_path.insert(0, _Alias)
if sys.stderr is not None:
    faulthandler.register(signal.SIGQUIT, all_threads=True)
_run_next()
