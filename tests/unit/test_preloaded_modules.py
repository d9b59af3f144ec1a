"""What a fork server imports ahead, from scripts as they are written."""

from ringleader.launch.elastic.preloaded_modules import WITH_ADAPTER, WarmStart, imported_names, warm_start
from ringleader.launch.host_probe.host_answer import is_python

TORCH = ("torch", "torch._dynamo")


def start(files, *command):
    return warm_start(
        command, lambda path: files[path].encode() if path in files else None, is_python=is_python
    )


def test_what_a_script_imports():
    for source, modules in (
        ("import torch.nn as nn, numpy as np", ("numpy", *TORCH)),
        ("import horovod.torch as hvd", (*TORCH, *WITH_ADAPTER)),
        ("import ringleader.torch as hvd\nimport torch", (*TORCH, *WITH_ADAPTER)),
        ("from ringleader import torch as hvd", (*TORCH, *WITH_ADAPTER)),
        ("import torchmetrics, torch_geometric, numpydoc", ()),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None", TORCH),
        ("if True:\n    with open('x'):\n        import torch", TORCH),
        ("def f():\n    import torch", ()),
        ("x = = 1", ()),
        ("from torchvision.models import *", ("torchvision",)),
    ):
        assert start({"train.py": source}, "python", "train.py", "--lr", "1") == WarmStart(modules=modules)


def test_files_that_a_script_imports_count():
    files = {
        "src/train.py": "import model\nfrom data import loader\nimport json, nowhere",
        "src/model.py": "from parts.layers import Layer",
        "src/parts/__init__.py": "import numpy",
        "src/parts/layers.py": "from . import base\nfrom ..deep import no",
        "src/parts/base.py": "import torch",
        "src/data/__init__.py": "",
        "src/data/loader.py": "import train, horovod.torch",
        "model.py": "import tensorflow",
    }
    expected = WarmStart(modules=("numpy", *TORCH, *WITH_ADAPTER))
    assert start(files, "python3", "-u", "src/train.py") == expected


def test_modules_and_packages():
    files = {
        "pack/train.py": "from .sub import x",
        "pack/sub.py": "import torch",
        "pack/__main__.py": "import numpy",
    }
    assert start(files, "python", "-m", "pack.train").modules == TORCH
    assert start(files, "python", "-m", "pack").modules == ("numpy",)
    assert start(files, "python", "pack").modules == ("numpy",)
    assert start(files, "python", "-m", "installed.module") == WarmStart()


def test_ranks_that_start_cold():
    for command, said in (
        (("bash", "-c", "python train.py"), "not a Python script"),
        (("python",), "names no script"),
        (("python", "-c", "print(1)"), "-c is an option"),
        (("python", "train.py"), "ringleader.tensorflow starts threads"),
        (("python", "keras.py"), "keras starts threads"),
    ):
        files = {
            "train.py": "import horovod.tensorflow as hvd\nimport torch",
            "keras.py": "from keras import layers",
        }
        assert said in start(files, *command).cold


def test_no_more_files_are_read_than_that():
    files = {f"m{number}.py": f"import m{number + 1}" for number in range(300)}
    read = {path: 0 for path in files}

    def count(path):
        if path in read:
            read[path] += 1
            return files[path].encode()
        return None

    names = imported_names("m0.py", "", count, most=20)
    assert len(names) <= 21 and sum(map(bool, read.values())) <= 22
