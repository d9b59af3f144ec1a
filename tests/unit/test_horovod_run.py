"""``horovod.run`` in Horovod's words."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import ringleader.runner
from ringleader import api
from ringleader.errors import RequestError
from ringleader.horovod_run import IGNORED, NAMES, accepts_horovod, translate
from ringleader.job import Ssh
from ringleader.torch import mpi_ops


def recorded(*args: Any, **keywords: Any) -> Any:
    """Return what the native function is called with."""

    @accepts_horovod
    def run(function: Any, args: Any = (), kwargs: Any = None, *, np: Any = None, **rest: Any) -> Any:
        return (function, args, kwargs), {"np": np, **rest}

    return run(*args, **keywords)


def test_native_words_go_through_as_they_are() -> None:
    assert recorded(print, (1,), np=3) == ((print, (1,), None), {"np": 3})
    assert recorded(print, np=3, start_timeout=None)[1] == {"np": 3}


def test_what_is_honoured(tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("a slots=2\nb slots=1\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        words, got = recorded(
            func=print,
            num_proc=3,
            hostfile=str(hostfile),
            start_timeout=9,
            ssh_port=22022,
            ssh_identity_file="key",
            output_filename="out",
            network_interfaces=["eth0", "eth1"],
            executable="/usr/bin/python3",
            use_mpi=True,
            use_gloo=False,
            max_np=None,
        )
    assert words[1:] == ((), None)
    assert [(host.name, host.slots) for host in got.pop("hosts")] == [("a", 2), ("b", 1)]
    assert got == {
        "np": 3,
        "start_timeout": 9,
        "ssh": Ssh(port=22022, identity="key"),
        "output_dir": "out",
        "network_interface": "eth0,eth1",
        "python": "/usr/bin/python3",
    }


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_what_changes_nothing_is_told(name: str) -> None:
    with pytest.warns(UserWarning, match=f"^{name} changes nothing here: "):
        _words, got = recorded(print, np=2, **{name: 1})
    assert got == {"np": 2, "oversubscribe": True}


def test_by_position_as_in_horovod() -> None:
    with pytest.warns(UserWarning, match="min_num_proc"):
        assert recorded(print, (), None, 4, 2)[1]["np"] == 4


@pytest.mark.parametrize(
    ("error", "keywords"),
    [
        (ValueError, {"use_gloo": True, "use_mpi": True}),
        (ValueError, {"np": 2, "num_proc": 3}),
        (ValueError, {"hosts": "a:1", "hostfile": "x"}),
        (ValueError, {"ssh": Ssh(), "ssh_port": 22}),
        (RequestError, {"hostfile": "/nowhere/hosts"}),
        (RequestError, {"host_discovery_script": "find.sh"}),
    ],
)
def test_what_is_refused(error: type[Exception], keywords: dict[str, Any]) -> None:
    with pytest.raises(error):
        translate(keywords)


def test_every_fault_of_a_hostfile_is_told(tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("a slots=none\nb:0\n")
    with pytest.raises(RequestError) as caught:
        translate({"hostfile": str(hostfile)})
    assert [fault.where for fault in caught.value.faults] == [f"{hostfile}:1", f"{hostfile}:2"]


def test_all_keywords_of_horovod_are_known() -> None:
    horovods = {
        *("func", "args", "kwargs", "num_proc", "min_num_proc", "max_num_proc", "slots", "reset_limit"),
        *("cooldown_range", "hosts", "hostfile", "host_discovery_script", "start_timeout", "ssh_port"),
        *("ssh_identity_file", "disable_cache", "output_filename", "verbose", "use_gloo", "use_mpi"),
        *("mpi_args", "network_interface", "network_interfaces", "executable", "np", "min_np", "max_np"),
    }
    native = {"args", "kwargs", "hosts"}
    assert horovods == NAMES | native
    with pytest.raises(TypeError, match="nonsense"):
        api.run(print, nonsense=1)  # type: ignore[call-arg]
    assert ringleader.runner.run is api.run
    assert not hasattr(ringleader.runner, "nonsense")


def test_basics_of_mpi_ops() -> None:
    assert mpi_ops._basics.size is mpi_ops.size
    assert mpi_ops._basics.mpi_built() is mpi_ops.mpi_built()


@pytest.mark.mpi
@pytest.mark.process
def test_a_job_in_horovods_words() -> None:
    def rank() -> int:
        import ringleader.torch as hvd

        hvd.init()
        return int(hvd.mpi_ops._basics.rank())  # type: ignore[attr-defined]

    with pytest.warns(UserWarning, match="use_gloo"):
        assert api.run(rank, (), np=2, use_gloo=True, use_mpi=False) == [0, 1]  # type: ignore[call-arg]
