"""Which GPU a rank takes where its script chooses none, and what is said where PyTorch sees none."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.commands import finished

from ringleader.torch.cuda import own_gpu
from ringleader.torch.cuda.own_gpu import choose_gpu, gpu_error_words, newest_operation

LAUNCHED = {"RINGLEADER_LAUNCHED": "1"}


class Cuda:
    """What is used of `torch.cuda`: how many GPUs it sees, or why none."""

    def __init__(self, count: int, *, used: bool = False, why: str = "") -> None:
        self.count, self.used, self.why = count, used, why
        self.current: list[int] = []
        self.later: list[object] = []

    def device_count(self) -> int:
        return self.count

    def is_initialized(self) -> bool:
        return self.used

    def init(self) -> None:
        raise RuntimeError(self.why)

    def set_device(self, index: int) -> None:
        self.current.append(index)

    def _lazy_call(self, act: object) -> None:
        self.later.append(act)


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    yield
    own_gpu._own.clear()
    own_gpu._newest.clear()


def driver(place: Path, gpus: int) -> Path:
    for number in range(gpus):
        (place / f"0000:{number}").mkdir()
    return place


@pytest.mark.parametrize(
    ("local_rank", "cuda", "variables", "chosen"),
    [
        (1, Cuda(4), LAUNCHED, 1),
        (5, Cuda(4), LAUNCHED, 1),  # --share-gpus
        (1, Cuda(4, used=True), LAUNCHED, None),  # the script has chosen
        (1, Cuda(1), LAUNCHED, None),  # --own-gpu
        (1, Cuda(4), {}, None),  # another launcher
    ],
)
def test_a_script_that_chooses_no_gpu_gets_its_ranks_once_it_uses_one(
    local_rank: int, cuda: Cuda, variables: dict[str, str], chosen: int | None, tmp_path: Path
) -> None:
    choose_gpu(local_rank=local_rank, variables=variables, cuda=cuda, build="12.8", driver=tmp_path)
    assert cuda.current == []  # a script on the CPU gets no context
    for act in cuda.later:
        assert callable(act)
        act()
    assert cuda.current == ([] if chosen is None else [chosen])


OLD_DRIVER = (
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"
)


@pytest.mark.parametrize(
    ("cuda", "there", "visible", "build", "words"),
    [
        (Cuda(0), 8, None, None, ["8 GPU(s)", "built without CUDA", "install a CUDA build"]),
        (Cuda(0), 8, "", None, []),  # wanted so
        (Cuda(0), 0, None, None, []),
        (
            Cuda(0, why=OLD_DRIVER),
            8,
            "0,1",
            "13.0",
            ["too old (found version 11040)", "update your GPU driver"],
        ),
        (
            Cuda(0, why="Found no NVIDIA driver"),
            0,
            "0",
            "12.8",
            ["Found no NVIDIA driver", "ringleader doctor"],
        ),
        (Cuda(0), 8, "", "12.8", ["CUDA_VISIBLE_DEVICES is empty", "unset it"]),
        (Cuda(1), 8, "GPU-a,GPU-b", "12.8", ["sees 1 of 2", "(GPU-b)", "nvidia-smi -L"]),
        (Cuda(1), 8, "MIG-a,MIG-b", "12.8", ["one MIG instance in a process"]),
        (Cuda(1), 8, "MIG-a", "12.8", []),
        (Cuda(8), 8, None, "12.8", []),
        (Cuda(0), 0, None, "12.8", []),  # a host without GPUs
    ],
)
def test_why_pytorch_sees_no_gpu_is_said_with_the_cure(
    cuda: Cuda, there: int, visible: str | None, build: str | None, words: list[str], tmp_path: Path
) -> None:
    said: list[str] = []
    for local_rank in (0, 1):
        choose_gpu(
            local_rank=local_rank,
            variables={} if visible is None else {"CUDA_VISIBLE_DEVICES": visible},
            cuda=cuda,
            build=build,
            driver=driver(tmp_path, there) if local_rank == 0 else tmp_path,
            say=said.append,
        )
    assert len(said) == bool(words), said
    assert all(word in said[0] for word in words), said


def test_an_error_of_a_gpu_that_ends_the_script_is_named() -> None:
    lost = torch.AcceleratorError("CUDA error: GPU is lost")
    assert gpu_error_words(lost) == ""  # nothing was done on a GPU
    newest_operation(3, torch.device("cpu", 1), "allreduce 'grads'")
    words = gpu_error_words(lost)
    assert words.startswith("ringleader: rank 3, GPU 1, after allreduce 'grads': ") and "xid" in words
    assert "no memory is left" in gpu_error_words(torch.OutOfMemoryError("CUDA out of memory"))
    assert gpu_error_words(ValueError("something of the script's")) == ""


@pytest.mark.process
def test_the_words_are_shown_with_an_error_that_nobody_catches() -> None:
    script = (
        "import torch\n"
        "from ringleader.torch.cuda.own_gpu import name_gpu_at_the_end, newest_operation\n"
        "name_gpu_at_the_end()\n"
        "newest_operation(3, torch.device('cpu', 1), 'allreduce')\n"
        "raise torch.AcceleratorError('CUDA error: GPU is lost')\n"
    )
    ended = finished([sys.executable, "-c", script], timeout=120)
    assert ended.returncode == 1
    assert "rank 3, GPU 1, after allreduce" in ended.stderr.splitlines()[-1], ended.stderr
