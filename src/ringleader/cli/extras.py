"""What to say where an optional part of Ringleader is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ringleader.errors import Fault, RefusedError


@contextmanager
def needs_kubernetes() -> Iterator[None]:
    """Turn a missing library of the extra ``kubernetes`` into a RefusedError that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library == "ringleader":
            raise
        hint = "pip install 'ringleader[kubernetes]'"
        raise RefusedError(
            Fault(where="", what=f"the Python package {library} is missing", hint=hint)
        ) from None
