"""What a rank's environment says, and what of a launcher's goes there. Path and names are Horovod's."""

from __future__ import annotations

import os
import re

from ringleader.runner.common.util.secret import HOROVOD_SECRET_KEY

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
