"""Programs for PATH that run in the tests' own interpreter, and what that one's directory permits."""

import shlex
import sys
from pathlib import Path

import pytest


def write_program(path: Path, text: str, *flags: str) -> None:
    """Write a Python program that this interpreter runs with ``flags``.

    After ``#!`` the kernel takes neither a path with a space nor a long one: a shell starts the interpreter,
    as in pip's scripts.
    """
    words = shlex.join((sys.executable, *flags))
    path.write_text(f"#!/bin/sh\n'''exec' {words} \"$0\" \"$@\"\n' '''\n{text}", encoding="utf-8")
    path.chmod(0o755)


def skip_where_mpirun_splits(prefix: str | Path) -> None:
    """Skip a test that starts an MPI's own mpirun over hosts: it quotes no path for their shells."""
    if str(prefix) and shlex.quote(str(prefix)) != str(prefix):  # empty: the system's own
        pytest.skip("this checkout's path has a space, and mpirun by itself starts no daemons there")
