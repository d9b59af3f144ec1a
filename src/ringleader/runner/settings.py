"""What a job gets besides its options: settings, variables, time limits, a secret; and objects as text.

Horovod's paths are ``settings``, ``env``, ``timeout``, ``secret`` and ``codec`` of ``runner.common.util``,
``settings``, ``driver`` and ``constants`` of ``runner.elastic``; names and meanings are Horovod's. Hosts are
in `hosts`, options in `option_table`.
"""

from __future__ import annotations

import base64
import os
import pickle
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringleader.horovod_run import DISCOVERY_SECONDS
from ringleader.horovod_run import RESET_LIMIT_EXCEEDED_MESSAGE as RESET_LIMIT_EXCEEDED_MESSAGE

if TYPE_CHECKING:
    from ringleader.runner.hosts import HostDiscovery

DISCOVER_HOSTS_FREQUENCY_SECS = DISCOVERY_SECONDS
"""Between two looks at the hosts; whoever needs it reads it when a job starts, as scripts may change it."""
ELASTIC_TIMEOUT_SECS = 600
"""For enough slots to come up, where neither ``--elastic-timeout`` nor HOROVOD_ELASTIC_TIMEOUT says so."""
HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"
"""Variable that would carry it; never forwarded."""
DIGEST_LENGTH = 32
"""Bytes."""
LOG_LEVEL_STR = ["FATAL", "ERROR", "WARNING", "INFO", "DEBUG", "TRACE"]
IGNORE_REGEXES = {"BASH_FUNC_.*", "OLDPWD", ".*CUDA_VISIBLE_DEVICES", HOROVOD_SECRET_KEY}
"""Variables of the launcher that no rank gets."""
_NUMBERS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def is_exportable(v: str) -> bool:
    """Return whether a variable of this name goes to the ranks."""
    return not any(re.match(pattern, v) for pattern in IGNORE_REGEXES)


def get_env_rank_and_size() -> tuple[int, int]:
    """Return rank and number of ranks as the environment tells them; 0 and 1 where it does not.

    RuntimeError where it tells only one of them.
    """
    for names in _NUMBERS:
        found = [os.environ.get(name) for name in names]
        rank, size = found
        if rank is not None and size is not None:
            return int(rank), int(size)
        if rank is not None or size is not None:
            raise RuntimeError(f"only one of {names[0]} and {names[1]} is set: rank and size are not known")
    return 0, 1


def make_secret_key() -> bytes:
    """Return a new one."""
    return os.urandom(DIGEST_LENGTH)


def loads_base64(encoded: str | bytes) -> Any:
    """Return the object that `dumps_base64` wrote. Only for text from those whom you trust."""
    import cloudpickle

    return cloudpickle.loads(base64.b64decode(encoded))


def dumps_base64(obj: Any, to_ascii: bool = True) -> str | bytes:
    """Return an object as base64, as text or as bytes."""
    import cloudpickle

    encoded = base64.b64encode(cloudpickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL))
    return encoded.decode("ascii") if to_ascii else encoded


class TimeoutException(Exception):  # noqa: N818 - Horovod's name
    """It is not done."""

    def __init__(self, message: str) -> None:
        """Keep the message."""
        super().__init__(message)
        self.message = message


class Timeout:
    """Begins when it is made."""

    def __init__(self, timeout: float, message: str) -> None:
        """``timeout`` in seconds; ``{activity}`` in the message is what is waited for."""
        self._timeout, self._message = timeout, message
        self._until = time.monotonic() + timeout

    def remaining(self) -> float:
        """Return the seconds that are left, at least 0."""
        return max(0.0, self._until - time.monotonic())

    def timed_out(self) -> bool:
        """Return whether none are left."""
        return time.monotonic() > self._until

    def check_time_out_for(self, activity: str) -> None:
        """Raise TimeoutException where none are left."""
        if self.timed_out():
            text = self._message.format(activity=activity).rstrip()
            raise TimeoutException(f"{text.removesuffix('.')}. Timeout after {self._timeout} seconds.")


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


@dataclass
class ElasticSettings(BaseSettings):
    """A job's options, where its hosts come from, and how much it may change."""

    discovery: HostDiscovery | None = None
    """Not pickled with the rest: only the launcher looks for hosts."""
    min_num_proc: int | None = None
    max_num_proc: int | None = None
    elastic_timeout: int | None = None
    """Seconds."""
    reset_limit: int | None = None
    cooldown_range: tuple[int, int] | None = None
    """Seconds."""
    elastic: bool = True

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"discovery": None}
