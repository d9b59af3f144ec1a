"""Programs of the system that tests need: `scripts/system` installs them where it may."""

import os
import shutil

import pytest


def installable() -> bool:
    """Return whether `make test` could have installed what is missing: as root, with apt-get."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def program(name: str, package: str) -> str:
    """Return a program's path; without it fail the test, or skip it where nobody could have installed it."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin")
    if path is None:
        words = f"{name} is not installed: apt-get install {package}"
        if installable():
            pytest.fail(words)
        pytest.skip(words)
    return path
