"""Names that scripts import by Horovod's paths: they are there, and are the same objects as ours."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

import ringleader.torch as hvd
from ringleader.common import util
from ringleader.common.basics import HorovodBasics

PATHS = (
    "common",
    "common.basics",
    "common.exceptions",
    "common.process_sets",
    "common.util",
    "torch",
    "torch.compression",
    "torch.functions",
    "torch.mpi_ops",
    "torch.optimizer",
    "torch.sync_batch_norm",
)


@pytest.mark.process
def test_every_path_is_the_same_module_and_is_loaded_once() -> None:
    code = f"""
import importlib, sys, ringleader.alias
ringleader.alias.install()
for path in {PATHS!r}:
    theirs, ours = importlib.import_module("horovod." + path), importlib.import_module("ringleader." + path)
    assert theirs is ours, path
from horovod.common.process_sets import ProcessSet
import ringleader.common.process_sets as sets
assert ProcessSet is sets.ProcessSet
print(sum(name.endswith("torch.mpi_ops") for name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2\n"  # one module under two names


def test_what_is_there_without_a_job() -> None:
    assert hvd.mpi_built() is True
    assert hvd.mpi_enabled() is True
    for name in ("gloo_built", "gloo_enabled", "ddl_built", "ccl_built"):
        assert getattr(hvd, name)() is False
    assert hvd.cuda_built() is (torch.version.cuda is not None)
    assert hvd.rocm_built() is (torch.version.hip is not None)
    assert type(hvd.nccl_built()) is int


@pytest.mark.parametrize(
    ("version", "code"), [((2, 23, 4), 22304), ((2, 9, 1), 20901), ((2, 7, 8), 2708), ((2, 26), 22600)]
)
def test_nccl_tells_its_version_in_its_own_code(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], code: int
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: version)
    assert util.nccl_built() == code
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    assert util.nccl_built() == 0


def test_basics_are_the_adapters_functions() -> None:
    basics = HorovodBasics(__file__, "mpi_lib_v2")
    assert basics.size is hvd.size
    assert basics.Average is hvd.Average
    with pytest.raises(ValueError, match="not been initialized"):
        basics.rank()
    with pytest.raises(AttributeError, match="nonsense"):
        _ = basics.nonsense


def test_extensions() -> None:
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    with pytest.raises(ImportError, match=r"horovod\.mxnet"):
        util.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", __file__, "mpi_lib")
    assert util.gpu_available("torch") is (torch.cuda.device_count() > 0)
    assert util.gpu_available("mxnet") is False


@pytest.mark.parametrize(
    ("op", "average", "chosen"),
    [(None, None, hvd.Average), (None, True, hvd.Average), (None, False, hvd.Sum), (hvd.Max, None, hvd.Max)],
)
@pytest.mark.filterwarnings("ignore:Parameter `average`:DeprecationWarning")
def test_average_and_op_become_one(op: Any, average: bool | None, chosen: Any) -> None:
    assert util.get_average_backwards_compatibility_fun(hvd)(op, average) is chosen


def test_average_and_op_together_are_refused() -> None:
    with pytest.raises(ValueError, match="supersedes average"):
        util.get_average_backwards_compatibility_fun(hvd)(hvd.Sum, True)
