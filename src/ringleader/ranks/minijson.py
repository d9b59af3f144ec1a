"""JSON as agents need it, without the standard module's Python half, which would cost each of them 8 ms.

The same text as ``json`` writes without spaces, and the same C scanner behind reading.
"""

from __future__ import annotations

TYPE_CHECKING = False  # see fast_stdlib.py
if TYPE_CHECKING:
    from typing import Any

    def _quoted(text: str) -> str: ...

    def _scan(text: str, start: int) -> tuple[Any, int]: ...

else:
    try:
        from _json import encode_basestring_ascii as _quoted
        from _json import make_scanner

        class _Rules:
            """What the scanner asks for: plain values, as ``json.loads`` without arguments."""

            strict = True
            object_hook = object_pairs_hook = None
            parse_float, parse_int, parse_constant = float, int, float

        _scan = make_scanner(_Rules())
    except (ImportError, AttributeError, TypeError):
        from json import JSONDecoder
        from json.encoder import encode_basestring_ascii as _quoted

        _scan = JSONDecoder().scan_once

_CONSTANTS = {None: "null", True: "true", False: "false"}


def dumps(value: Any) -> str:
    """Return the JSON text of strings, numbers, None, and lists and dicts of them with strings as keys."""
    if isinstance(value, str):
        return _quoted(value)
    if value is None or isinstance(value, bool):
        return _CONSTANTS[value]
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, dict):
        return "{" + ",".join([f"{_quoted(key)}:{dumps(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([dumps(item) for item in value]) + "]"
    raise TypeError(f"{type(value).__name__} is nothing that JSON knows")


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return float.__repr__(value)


def loads(data: bytes | str) -> Any:
    """Return the value of a JSON text. Raises ValueError for anything else."""
    text = (data if isinstance(data, str) else data.decode()).strip(" \t\n\r")
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        raise ValueError("no JSON")
    except RecursionError:
        raise ValueError("JSON that is nested too deeply")
    if end != len(text):
        raise ValueError("more than one JSON value")
    return value
