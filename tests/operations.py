"""How many instructions of Python's something takes: what grows too fast shows in numbers, not in seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def operations(act: Callable[[], Any]) -> int:
    """Call a function; return how many instructions it and all that it calls took, C's not counted."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def growth(act: Callable[[int], Callable[[], Any]], few: int, many: int) -> float:
    """Return by what the operations of ``many`` exceed those of ``few``, for each of them: 1.0 is linear."""
    return operations(act(many)) / operations(act(few)) * few / many
