"""A framework that is not installed: one line that names the Python and the cure."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import importlib, sys
for name in ("torch", "tensorflow", "jax", "mxnet"):
    sys.modules[name] = None
    try:
        importlib.import_module(f"ringleader.{name}")
    except ModuleNotFoundError as error:
        assert error.name == name
        print(error)
"""


@pytest.mark.process
def test_a_framework_that_is_not_installed() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    said = [line.split(sys.executable) for line in done.stdout.splitlines()]
    assert said == [
        ["PyTorch is not installed for ", ": pip install torch"],
        ["TensorFlow is not installed for ", ": pip install tensorflow"],
        ["JAX is not installed for ", ": pip install jax optax"],
        ["MXNet is not installed for ", ": docs/guides/mxnet.md has the versions that work"],
    ]
