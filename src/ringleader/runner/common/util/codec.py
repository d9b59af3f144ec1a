"""Objects as text, pickled (cloudpickle). Path and names are Horovod's."""

from __future__ import annotations

import base64
import pickle
from typing import Any

import cloudpickle


def loads_base64(encoded: str | bytes) -> Any:
    """Return the object that `dumps_base64` wrote. Only for text from those whom you trust."""
    return cloudpickle.loads(base64.b64decode(encoded))


def dumps_base64(obj: Any, to_ascii: bool = True) -> str | bytes:
    """Return an object as base64, as text or as bytes."""
    encoded = base64.b64encode(cloudpickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL))
    return encoded.decode("ascii") if to_ascii else encoded
