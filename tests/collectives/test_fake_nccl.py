"""The code for GPUs on a fake GPU and a fake NCCL, which behave as PyTorch's sources say for 2.8 and 2.13."""

from typing import Any

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.torch]

APART = {"RINGLEADER_RANKS_PER_HOST": "1"}
GLOO = {"RINGLEADER_TRANSPORT": "distributed"}
VERSIONS = ["2.8", "2.13"]


@pytest.mark.parametrize("version", [pytest.param(VERSIONS[0], marks=pytest.mark.long), *VERSIONS[1:]])
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(("contract.py", "distributed"), marks=pytest.mark.long),
        pytest.param(  # factors of NCCL's are exact for powers of two
            ("contract_operations.py", "distributed", "4"), marks=pytest.mark.long
        ),
        ("distributed.py", "operations"),
        pytest.param(("training.py",), marks=pytest.mark.long),
        pytest.param(("sharding.py",), marks=pytest.mark.long),
        ("life.py",),
    ],
    ids=lambda program: program[0].removesuffix(".py"),
)
def test_the_contract_of_operations_and_optimizers(jobs: Any, program: tuple[str, ...], version: str) -> None:
    size = int(program[2]) if len(program) > 2 else 3
    jobs("on_fake_nccl.py", *program, ranks=size, FAKE_TORCH=version, **GLOO).passed(size)


def test_process_sets(jobs: Any) -> None:
    sets = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1", **GLOO}
    jobs("on_fake_nccl.py", "sets.py", ranks=3, FAKE_TORCH="2.8", **sets).passed(3)


@pytest.mark.parametrize("what", ["together", "optimizer", "second", "joined"])
def test_ranks_with_several_gpus(jobs: Any, what: str) -> None:
    """Every GPU's results are waited for, and no GPU gets a context that nobody uses."""
    jobs("two_gpus.py", what, ranks=2, **APART).passed(2)


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        pytest.param("lost", "CUDA error: GPU is lost", marks=pytest.mark.long),
        pytest.param("memory", "CUDA out of memory", marks=pytest.mark.long),
        ("nccl", "NCCL error: remote process exited"),
    ],
)
def test_a_failure_names_rank_gpu_and_operation(jobs: Any, fails: str, words: str) -> None:
    alone = ("--runtime-options", "recoverable")
    job = jobs.fresh("gpu_failures.py", fails, ranks=2, options=alone, timeout=60, **APART)
    assert words in job.out, job.out + job.err
    assert "ringleader: rank 1, GPU 0, in allreduce 'allreduce.second'" in job.out, job.out + job.err
