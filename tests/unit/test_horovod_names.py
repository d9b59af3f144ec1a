"""Names that scripts import by Horovod's paths: they are there, and are the same objects as ours."""

import subprocess
import sys

import pytest
import torch

import ringleader.torch as hvd
from ringleader.adapters import util
from ringleader.adapters.basics import HorovodBasics

OPERATIONS = (
    "allreduce allreduce_ allreduce_async allreduce_async_ grouped_allreduce grouped_allreduce_ "
    "grouped_allreduce_async grouped_allreduce_async_ sparse_allreduce_async allgather allgather_async "
    "grouped_allgather grouped_allgather_async broadcast broadcast_ broadcast_async broadcast_async_ "
    "alltoall alltoall_async reducescatter reducescatter_async grouped_reducescatter "
    "grouped_reducescatter_async join barrier poll synchronize Average Sum Adasum Min Max Product "
)
BASICS = (
    "init shutdown is_initialized size rank local_size local_rank cross_size cross_rank "
    "mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built "
    "cuda_built rocm_built is_homogeneous start_timeline stop_timeline "
)
SETS = "ProcessSet global_process_set add_process_set remove_process_set "
NAMES = {
    "common": "",
    "common.basics": "HorovodBasics",
    "common.elastic": "State ObjectState run_fn HorovodInternalError HostsUpdatedInterrupt HostUpdateResult",
    "common.exceptions": "HorovodInternalError HorovodVersionMismatchError HostsUpdatedInterrupt",
    "common.process_sets": SETS,
    "common.util": "check_extension check_installed_version extension_available gpu_available mpi_built "
    "gloo_built nccl_built ddl_built ccl_built env num_rank_is_power_2 split_list is_iterable "
    "get_average_backwards_compatibility_fun is_version_greater_equal_than",
    "runner": "run _HorovodArgs",
    "runner.common.util": "",
    "runner.common.util.codec": "loads_base64 dumps_base64",
    "runner.common.util.config_parser": "set_args_from_config set_env_from_args validate_config_args "
    "HOROVOD_FUSION_THRESHOLD HOROVOD_TIMELINE LOG_LEVELS",
    "runner.common.util.env": "is_exportable get_env_rank_and_size",
    "runner.common.util.host_hash": "host_hash",
    "runner.common.util.hosts": "HostInfo SlotInfo parse_hosts parse_host_files parse_hosts_and_slots "
    "get_host_assignments",
    "runner.common.util.safe_shell_exec": "execute",
    "runner.common.util.secret": "make_secret_key HOROVOD_SECRET_KEY",
    "runner.common.util.settings": "BaseSettings Settings",
    "runner.common.util.timeout": "Timeout TimeoutException",
    "runner.common.util.tiny_shell_exec": "execute",
    "runner.elastic": "",
    "runner.elastic.constants": "RESET_LIMIT_EXCEEDED_MESSAGE",
    "runner.elastic.discovery": "DiscoveredHosts FixedHosts HostDiscovery HostDiscoveryScript HostManager "
    "HostState",
    "runner.elastic.driver": "DISCOVER_HOSTS_FREQUENCY_SECS ELASTIC_TIMEOUT_SECS",
    "runner.elastic.settings": "ElasticSettings",
    "runner.elastic.worker": "HostUpdateResult",
    "runner.gloo_run": "gloo_run",
    "runner.launch": "parse_args run_commandline check_build _run gloo_built mpi_built nccl_built",
    "runner.mpi_run": "mpi_run mpi_available is_open_mpi is_mpich is_intel_mpi is_spectrum_mpi",
    "runner.util": "",
    "runner.util.threads": "in_thread on_event execute_function_multithreaded",
    "torch": OPERATIONS
    + BASICS
    + SETS
    + "Compression DistributedOptimizer SyncBatchNorm broadcast_parameters broadcast_optimizer_state "
    "broadcast_object allgather_object HorovodInternalError",
    "torch.compression": "Compression Compressor NoneCompressor FP16Compressor",
    "torch.elastic": "run TorchState ElasticSampler run_fn",
    "torch.elastic.sampler": "ElasticSampler",
    "torch.elastic.state": "TorchState StateHandler ModelStateHandler OptimizerStateHandler "
    "SamplerStateHandler get_handler_registry set_handler_registry",
    "torch.functions": "broadcast_parameters broadcast_optimizer_state broadcast_object allgather_object",
    "torch.mpi_ops": OPERATIONS
    + BASICS
    + SETS
    + "_basics Compression HorovodInternalError handle_average_backwards_compatibility HorovodAllreduce "
    "HorovodGroupedAllreduce HorovodAllgather HorovodGroupedAllgather HorovodBroadcast HorovodAlltoall "
    "HorovodReducescatter HorovodGroupedReducescatter",
    "torch.optimizer": "DistributedOptimizer",
    "torch.sync_batch_norm": "SyncBatchNorm",
}
"""Horovod's path → the names that scripts import from there."""


@pytest.mark.process
def test_every_path_has_its_names_and_is_one_module_with_ours():
    code = f"""
import importlib, sys, ringleader.alias
ringleader.alias.install()
for path, names in {NAMES!r}.items():
    theirs, ours = importlib.import_module("horovod." + path), importlib.import_module("ringleader." + path)
    assert theirs is ours, path
    missing = [name for name in names.split() if not hasattr(theirs, name)]
    assert not missing, (path, missing)
from horovod.runner import gloo_run, mpi_run
from horovod.runner.common.util import codec, host_hash, settings
from horovod.runner.elastic import driver, settings as elastic_settings
assert (gloo_run.gloo_run, mpi_run.mpi_run, settings.Settings, elastic_settings.ElasticSettings, driver)
assert host_hash.host_hash() and codec.loads_base64(codec.dumps_base64(1)) == 1
try:
    import horovod.runner.common.util.network
except ImportError as error:
    assert "does not offer 'runner.common.util.network' yet" in str(error), error
from horovod.common.process_sets import ProcessSet
import ringleader.adapters.process_sets as sets
assert ProcessSet is sets.ProcessSet
import horovod.torch as hvd, horovod.torch.mpi_ops as ops
assert all(getattr(hvd, name) is getattr(ops, name) for name in {OPERATIONS + BASICS + SETS!r}.split())
print(sum(name.endswith("torch.mpi_ops") for name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2\n"  # one module under two names


@pytest.mark.parametrize(
    ("version", "code"), [((2, 23, 4), 22304), ((2, 9, 1), 20901), ((2, 7, 8), 2708), ((2, 26), 22600)]
)
def test_nccl_tells_its_version_in_its_own_code(monkeypatch, version, code):
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: version)
    assert util.nccl_built() == code
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    assert util.nccl_built() == 0


@pytest.mark.filterwarnings("ignore:Parameter `average`:DeprecationWarning")
def test_average_and_op_become_one():
    for op, average, chosen in (
        (None, None, hvd.Average),
        (None, True, hvd.Average),
        (None, False, hvd.Sum),
        (hvd.Max, None, hvd.Max),
    ):
        assert util.get_average_backwards_compatibility_fun(hvd)(op, average) is chosen


def test_what_is_there_without_a_job():
    assert hvd.mpi_built() is True and hvd.mpi_enabled() is True and type(hvd.nccl_built()) is int
    for name in ("gloo_built", "gloo_enabled", "ddl_built", "ccl_built"):
        assert getattr(hvd, name)() is False
    assert hvd.cuda_built() is (torch.version.cuda is not None)
    assert hvd.rocm_built() is (torch.version.hip is not None)
    basics = HorovodBasics(__file__, "mpi_lib_v2")
    assert basics.size is hvd.size and basics.Average is hvd.Average
    with pytest.raises(ValueError, match="not been initialized"):
        basics.rank()
    with pytest.raises(AttributeError, match="nonsense"):
        _ = basics.nonsense
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    with pytest.raises(ImportError, match=r"horovod\.mxnet"):
        util.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", __file__, "mpi_lib")
    assert util.gpu_available("torch") is (torch.cuda.device_count() > 0)
    with pytest.raises(ValueError, match="supersedes average"):
        util.get_average_backwards_compatibility_fun(hvd)(hvd.Sum, True)


def test_extensions():
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    with pytest.raises(ImportError, match=r"horovod\.mxnet"):
        util.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", __file__, "mpi_lib")
    assert util.gpu_available("torch") is (torch.cuda.device_count() > 0)
    assert util.gpu_available("mxnet") is False
