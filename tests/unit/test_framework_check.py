"""A framework that is not installed: one line that names the Python and the cure."""

import subprocess
import sys

import pytest

from ringleader.adapters import framework_check
from ringleader.adapters.framework_check import check_framework, too_old

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
def test_a_framework_that_is_not_installed():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    said = [line.split(sys.executable) for line in done.stdout.splitlines()]
    assert said == [
        ["PyTorch is not installed for ", ": pip install 'torch>=2.8'"],
        ["TensorFlow is not installed for ", ": pip install tensorflow"],
        ["JAX is not installed for ", ": pip install jax optax"],
        ["MXNet is not installed for ", ": docs/guides/mxnet.md has the versions that work"],
    ]


def test_a_framework_that_is_too_old_is_named_with_its_version_and_the_cure(monkeypatch):
    monkeypatch.setattr(framework_check, "version", lambda name: "2.6.0+cu124")
    monkeypatch.setattr(framework_check.sys, "modules", {})
    with pytest.raises(ImportError) as caught:
        check_framework("json", "PyTorch", "pip install 'torch>=2.8'", least="2.8")
    assert str(caught.value) == (
        f"PyTorch 2.6.0+cu124 is installed for {sys.executable} and 2.8 or later is needed: "
        "pip install 'torch>=2.8'"
    )


def test_versions_are_compared_by_numbers():
    versions = ("2.8.0", "2.7.1", "1.13", "2.13.0+cpu", "3.0", "main")
    assert [found for found in versions if too_old(found, "2.8")] == ["2.7.1", "1.13"]
