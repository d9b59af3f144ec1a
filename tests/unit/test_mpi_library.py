"""Which mpi4py a rank accepts."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from ringleader.engine import mpi_library
from ringleader.engine.engine_settings import read_settings
from ringleader.engine.exceptions import WorldError


@pytest.mark.parametrize("version", ["3.1.4", "4.0.3", "5.0.0"])
def test_another_mpi4py_is_named_before_mpi_starts(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("mpi4py")
    module.__version__, module.__file__ = version, "/image/mpi4py/__init__.py"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mpi4py", module)
    with pytest.raises(WorldError, match=rf"mpi4py {version} \(/image/.*pip install 'mpi4py>=4.1,<5'"):
        mpi_library.load(read_settings({}))
