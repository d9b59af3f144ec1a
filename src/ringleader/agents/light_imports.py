"""The C halves of modules whose Python halves would cost every rank's agent some 30 ms at its start.

``signal`` and ``socket`` build enumerations, ``hashlib`` loads OpenSSL, ``contextlib`` pulls in
``collections``. What is taken here is what those modules themselves build on; they are used where an
interpreter lacks it. Names of types, which annotations alone use, are here as well: ``typing`` would cost as
much. Any Python from 3.8 on has to read this file: hosts that are probed run it, too.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's name for it means the same to a type checker and need not be imported
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import suppress
    from hashlib import blake2b
    from hmac import compare_digest
    from typing import Any, NoReturn
else:
    try:
        import _signal as signal
        import _socket as socket
        from _blake2 import blake2b
        from _operator import _compare_digest as compare_digest
    except ImportError:
        import signal
        import socket
        from hashlib import blake2b
        from hmac import compare_digest

    class suppress:  # noqa: N801 - stands for the standard library's
        """``contextlib.suppress``."""

        def __init__(self, *kinds):
            self._kinds = kinds

        def __enter__(self):
            return None

        def __exit__(self, kind, value, trace):
            return kind is not None and issubclass(kind, self._kinds)

    Any = NoReturn = Callable = Iterable = Iterator = Mapping = Sequence = None

__all__ = [
    "TYPE_CHECKING",
    "Any",
    "Callable",
    "Iterable",
    "Iterator",
    "Mapping",
    "NoReturn",
    "Sequence",
    "blake2b",
    "compare_digest",
    "signal",
    "socket",
    "suppress",
]
