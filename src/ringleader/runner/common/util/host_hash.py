"""A name for the part of a machine whose processes share memory. Path and names are Horovod's."""

from __future__ import annotations

import hashlib
import socket

from ringleader.agents.rank_identity import host_identity


def host_hash(salt: object | None = None) -> str:
    """Return the machine's name and a checksum of what it is; another one for each ``salt``."""
    name = socket.gethostname()
    text = f"{name}-{host_identity()}" + (f"-{salt}" if salt else "")
    return f"{name.partition('.')[0]}-{_hash(text)}"


def _hash(string: str) -> str:
    return hashlib.md5(string.encode(), usedforsecurity=False).hexdigest()
