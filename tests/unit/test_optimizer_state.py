"""What ranks send each other of an optimizer: its state without tensors, its steps, its handles."""

from __future__ import annotations

import pickle
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ringleader.adapters import handles
from ringleader.adapters.step_metrics import SessionMetrics, session_metrics
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.torch.functions import _filled, _home, _outline


def test_a_value_that_cannot_be_pickled_is_named_by_its_own_error() -> None:
    outline, tensors = _outline({"param_groups": [{"lock": threading.Lock()}]})
    assert tensors == []
    with pytest.raises(TypeError, match=r"^cannot pickle"):
        pickle.dumps(outline)


def test_pytorch_keeps_no_sparse_tensor_of_a_state() -> None:
    listed = torch._utils._sparse_tensors_to_validate
    before = list(listed)
    sparse = torch.eye(3).to_sparse()
    state = _filled(*_outline({"momentum": sparse, "step": torch.ones(2)}))
    assert torch.equal(state["momentum"].to_dense(), torch.eye(3)) and torch.equal(
        state["step"], torch.ones(2)
    )
    assert len(listed) == len(before)


def test_steps_are_counted_for_each_optimizer_and_session(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[Any] = [SimpleNamespace(engine=object(), timelines=None)]
    monkeypatch.setattr(PROCESS, "get", lambda: sessions[-1])
    monkeypatch.setenv("RINGLEADER_REPORT_FD", "")
    first, second = SessionMetrics(), SessionMetrics()
    known = first()
    assert first() is known and second() is not known and session_metrics() is not known
    sessions.append(SimpleNamespace(engine=object(), timelines=None))
    assert first() is not known and first().engine is sessions[-1].engine


def test_all_handles_are_waited_for_whatever_one_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    pending: dict[int, Any] = {}
    monkeypatch.setattr(handles, "PENDING", pending)

    def fail() -> None:
        raise MemoryError("of the first")

    engine: Any = SimpleNamespace(wait=lambda work: None)
    numbers = [handles.new_handle(engine, [], one) for one in (fail, lambda: None)]
    with pytest.raises(MemoryError, match="of the first"):
        handles.synchronize_all(numbers)
    assert not pending


def test_what_the_root_has_on_a_device_belongs_to_the_parameters_on_one_else_to_the_cpu() -> None:
    parameters = [torch.empty(1), torch.empty(1, device="meta")]
    assert _home("meta", parameters) == torch.device("meta")
    assert _home("cpu", parameters) == torch.device("cpu")
    assert _home("cuda", parameters) == torch.device("cpu")
