"""Words that stand for no process set."""

from __future__ import annotations

import pytest

from ringleader.adapters.process_sets import global_process_set, next_serial, number_of


@pytest.mark.parametrize("word", [None, 0, [0, 1]])
def test_what_is_no_process_set_is_named(word: object) -> None:
    for call in (number_of, next_serial):
        with pytest.raises(TypeError, match=r"process_set= takes an hvd\.ProcessSet, not"):
            call(word)  # type: ignore[operator]
    assert number_of(global_process_set) == 0
