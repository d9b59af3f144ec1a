"""A secret that processes of one job share. Path and names are Horovod's."""

from __future__ import annotations

import secrets

HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"
"""Variable that would carry it; never forwarded."""
DIGEST_LENGTH = 32
"""Bytes."""


def make_secret_key() -> bytes:
    """Return a new one."""
    return secrets.token_bytes(DIGEST_LENGTH)
