"""What ``gloo_run`` and ``mpi_run`` are told of a job. Path and names are Horovod's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ringleader.runner.common.util.timeout import Timeout


@dataclass
class BaseSettings:
    """A job's options."""

    num_proc: int | None = None
    verbose: int = 0
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    extra_mpi_args: str | None = None
    tcp_flag: bool | None = None
    binding_args: str | None = None
    key: bytes | None = None
    """Not needed here."""
    start_timeout: Timeout | None = None
    output_filename: str | None = None
    run_func_mode: bool | None = None
    nics: Iterable[str] | None = None
    elastic: bool = False
    prefix_output_with_timestamp: bool = False


@dataclass
class Settings(BaseSettings):
    """A job's options and hosts."""

    hosts: str | None = None
    """``h1:2,h2:4``."""
