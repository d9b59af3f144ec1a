"""Which mpi4py a rank accepts, and how an MPI proxy finds the library."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.commands import finished

from ringleader.agents.rank_identity import host_identity, host_key
from ringleader.engine import loaded_mpi
from ringleader.engine.engine_settings import read_settings
from ringleader.engine.exceptions import WorldError


@pytest.mark.parametrize("version", ["3.1.4", "4.0.3", "5.0.0"])
def test_another_mpi4py_is_named_before_mpi_starts(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("mpi4py")
    module.__version__, module.__file__ = version, "/image/mpi4py/__init__.py"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mpi4py", module)
    with pytest.raises(WorldError, match=rf"mpi4py {version} \(/image/.*pip install 'mpi4py>=4.1,<5'"):
        loaded_mpi.load(read_settings({}))


BEGIN_ANEW = """
import os, runpy, sys
def execv(program, words):
    print(os.environ["LD_LIBRARY_PATH"])
    print(*sorted(name for name in sys.modules if name.startswith("ringleader.engine")))
    sys.exit(0)
os.execv = execv
runpy.run_module("ringleader.engine.mpi_proxy", run_name="__main__", alter_sys=True)
"""


@pytest.mark.process
def test_a_proxy_makes_links_before_it_imports_what_it_needs(tmp_path: Path) -> None:
    """It begins anew with them, and would import all of it twice."""
    environ = {
        **os.environ,
        "RINGLEADER_PROXY_LIBRARY_LINKS": '{"libmpi.so.40": "/opt/mpi/libmpi.so.41"}',
        "RINGLEADER_JOB_DIR": str(tmp_path),
        "LD_LIBRARY_PATH": "/usr/lib/mine",
    }
    (tmp_path / host_key(host_identity())).mkdir()
    done = finished([sys.executable, "-c", BEGIN_ANEW], env=environ, check=True, timeout=60)
    path, modules = done.stdout.splitlines()
    links, rest = path.split(":")
    assert rest == "/usr/lib/mine" and Path(links).is_relative_to(tmp_path)
    assert (Path(links) / "libmpi.so.40").readlink() == Path("/opt/mpi/libmpi.so.41")
    assert modules.split() == ["ringleader.engine", "ringleader.engine.mpi_proxy"]
