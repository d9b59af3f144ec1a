"""Which GPU a rank takes where its script chooses none, and what is said where PyTorch sees none."""

import sys
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from tests.commands import finished

from ringleader.adapters import basics
from ringleader.torch.cuda import own_gpu
from ringleader.torch.cuda.own_gpu import choose_gpu, gpu_error_words, newest_operation

LAUNCHED = {"RINGLEADER_LAUNCHED": "1"}


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(own_gpu, "_own", [])
    monkeypatch.setattr(own_gpu, "_newest", [])


def driver(place, gpus):
    for number in range(gpus):
        (place / f"0000:{number}").mkdir()
    return place


OLD_DRIVER = (
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"
)


def test_an_error_of_a_gpu_that_ends_the_script_is_named():
    lost = torch.AcceleratorError("CUDA error: GPU is lost")
    assert gpu_error_words(lost) == ""  # nothing was done on a GPU
    newest_operation(3, torch.device("cpu", 1), "allreduce 'grads'")
    words = gpu_error_words(lost)
    assert words.startswith("ringleader: rank 3, GPU 1, after allreduce 'grads': ") and "xid" in words
    assert "no memory is left" in gpu_error_words(torch.OutOfMemoryError("CUDA out of memory"))
    assert gpu_error_words(ValueError("something of the script's")) == ""


@pytest.mark.process
def test_the_words_are_shown_with_an_error_that_nobody_catches():
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


@pytest.mark.process  # TensorFlow's import starts some
@pytest.mark.parametrize(
    ("launched", "visible_devices", "chosen_before", "taken"),
    [
        (True, "0,1", None, ["second"]),
        (True, "1", None, None),  # --own-gpu
        (True, "0,1", ["first"], None),  # the script has chosen
        (False, "0,1", None, None),
    ],
)
@pytest.mark.long
def test_init_shows_tensorflow_the_ranks_own_gpu(
    monkeypatch, launched, visible_devices, chosen_before, taken
):
    tf = pytest.importorskip("tensorflow")
    from ringleader.tensorflow.mpi_ops import init

    gpus, shown = ["first", "second"], list[Any]()

    def show(devices, kind):
        shown.append([devices] if isinstance(devices, str) else list(devices))

    monkeypatch.setattr(basics, "init", lambda comm, process_sets: None)
    monkeypatch.setattr(basics, "local_rank", lambda: 1)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: chosen_before or gpus)
    monkeypatch.setattr(tf.config, "set_visible_devices", show)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible_devices)
    monkeypatch.delenv("RINGLEADER_LAUNCHED", raising=False)
    if launched:
        monkeypatch.setenv("RINGLEADER_LAUNCHED", "1")
    init()
    assert shown == ([] if taken is None else [taken])


def cuda_of(count, *, used=False, why=""):
    """What is used of `torch.cuda`: how many GPUs it sees, or why none."""
    current, later = [], []
    return SimpleNamespace(
        current=current,
        later=later,
        device_count=lambda: count,
        is_initialized=lambda: used,
        init=mock.Mock(side_effect=RuntimeError(why)),
        set_device=current.append,
        _lazy_call=later.append,
    )


@pytest.mark.parametrize(
    ("cuda", "there", "visible", "build", "words"),
    [
        (cuda_of(0), 8, None, None, ["8 GPU(s)", "built without CUDA", "install a CUDA build"]),
        (cuda_of(0), 8, "", None, []),  # wanted so
        (
            cuda_of(0, why=OLD_DRIVER),
            8,
            "0,1",
            "13.0",
            ["too old (found version 11040)", "update your GPU driver"],
        ),
        (
            cuda_of(0, why="Found no NVIDIA driver"),
            0,
            "0",
            "12.8",
            ["Found no NVIDIA driver", "ringleader doctor"],
        ),
        (cuda_of(0), 8, "", "12.8", ["CUDA_VISIBLE_DEVICES is empty", "unset it"]),
        (cuda_of(1), 8, "GPU-a,GPU-b", "12.8", ["sees 1 of 2", "(GPU-b)", "nvidia-smi -L"]),
        (cuda_of(1), 8, "MIG-a,MIG-b", "12.8", ["one MIG instance in a process"]),
        (cuda_of(1), 8, "MIG-a", "12.8", []),
        (cuda_of(0), 0, None, "12.8", []),  # a host without GPUs
    ],
)
def test_why_pytorch_sees_no_gpu_is_said_with_the_cure(cuda, there, visible, build, words, tmp_path):
    said = []
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


@pytest.mark.parametrize(
    ("local_rank", "cuda", "variables", "chosen"),
    [
        (1, cuda_of(4), LAUNCHED, 1),
        (5, cuda_of(4), LAUNCHED, 1),  # --share-gpus
        (1, cuda_of(4, used=True), LAUNCHED, None),  # the script has chosen
        (1, cuda_of(1), LAUNCHED, None),  # --own-gpu
        (1, cuda_of(4), {}, None),  # another launcher
    ],
)
def test_a_script_that_chooses_no_gpu_gets_its_ranks_once_it_uses_one(
    local_rank, cuda, variables, chosen, tmp_path
):
    choose_gpu(local_rank=local_rank, variables=variables, cuda=cuda, build="12.8", driver=tmp_path)
    assert cuda.current == []  # a script on the CPU gets no context
    for act in cuda.later:
        assert callable(act)
        act()
    assert cuda.current == ([] if chosen is None else [chosen])
