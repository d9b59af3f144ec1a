"""What ranks send each other of an optimizer: its state without tensors, its steps, its handles."""

import pickle
import threading
from types import SimpleNamespace

import pytest
import torch

import ringleader.torch as hvd
from ringleader.adapters import handles
from ringleader.adapters.process_sets import global_process_set, next_serial, number_of
from ringleader.adapters.step_metrics import SessionMetrics, session_metrics
from ringleader.engine.operations import ReduceOp
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.torch.compression.powersgd import PowerSgdReducer
from ringleader.torch.functions import _filled, _home, _outline
from ringleader.torch.gradient_config import GradientConfig


def test_pytorch_keeps_no_sparse_tensor_of_a_state():
    listed = torch._utils._sparse_tensors_to_validate
    before = list(listed)
    sparse = torch.eye(3).to_sparse()
    state = _filled(*_outline({"momentum": sparse, "step": torch.ones(2)}))
    assert torch.equal(state["momentum"].to_dense(), torch.eye(3)) and state["step"].tolist() == [1, 1]
    assert len(listed) == len(before)
    outline, tensors = _outline({"param_groups": [{"lock": threading.Lock()}]})
    assert tensors == []
    with pytest.raises(TypeError, match=r"^cannot pickle"):
        pickle.dumps(outline)
    # What the root has on a device belongs to the parameters on one, else to the CPU.
    parameters = [torch.empty(1), torch.empty(1, device="meta")]
    assert [_home(kind, parameters).type for kind in ("meta", "cpu", "cuda")] == ["meta", "cpu", "cpu"]


def test_all_handles_are_waited_for_whatever_one_raises(monkeypatch):
    pending = {}
    monkeypatch.setattr(handles, "PENDING", pending)

    def fail():
        raise MemoryError("of the first")

    def fail_too():
        raise ValueError("of the last")

    engine = SimpleNamespace(wait=lambda work: None)
    numbers = [handles.new_handle(engine, [], one) for one in (fail, lambda: None, fail_too)]
    with pytest.raises(MemoryError, match="of the first"):
        handles.synchronize_all(numbers)
    assert not pending


def test_powersgd_starts_again_for_a_gradient_that_was_not_finite_and_for_no_other():
    engine = SimpleNamespace(ranks=SimpleNamespace(size=1), run=lambda work: None)
    parameters = [torch.nn.Parameter(torch.zeros(9, 8)) for _ in range(2)]
    reducer = PowerSgdReducer(1)
    reducer.begin(engine, GradientConfig(op=ReduceOp.SUM), parameters)
    gradients = [torch.randn(9, 8), torch.full((9, 8), float("inf"))]
    reducer.reduce(parameters, gradients)
    assert gradients[0].isfinite().all() and not gradients[1].isfinite().all()
    kept, broken = (reducer.residual(one) for one in parameters)
    assert kept is not None and kept.isfinite().all() and broken is None
    gradients = [torch.randn(9, 8), torch.randn(9, 8)]
    reducer.reduce(parameters, gradients)
    assert all(one.isfinite().all() for one in gradients)


@pytest.mark.parametrize("written", [False, True])
def test_zeros_shown_to_a_script_move_nothing_in_a_step(written):
    """``written``: the script sets them to zero once more, as scripts for Horovod do."""
    hvd.init()
    try:
        used, unused = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
        plain = torch.optim.SGD([used, unused], lr=0.1, weight_decay=0.5)
        optimizer = hvd.DistributedOptimizer(plain, [("used", used), ("unused", unused)])
        optimizer.show_zeros()
        for parameter in (used, unused):
            assert parameter.grad is not None and not parameter.grad.any()
            if written:
                parameter.grad.zero_()
        used.sum().backward()
        optimizer.step()
        assert unused.grad is None and torch.equal(unused, torch.ones(2)) and not torch.equal(used, unused)
    finally:
        hvd.shutdown()


def test_what_is_no_process_set_is_named():
    for word in (None, 0, [0, 1]):
        for call in (number_of, next_serial):
            with pytest.raises(TypeError, match=r"process_set= takes an hvd\.ProcessSet, not"):
                call(word)
        assert number_of(global_process_set) == 0


def test_the_sets_of_a_job_by_the_name_that_horovods_tests_use():
    hvd.init()
    try:
        assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: [0]}
    finally:
        hvd.shutdown()


def test_steps_are_counted_for_each_optimizer_and_session(monkeypatch):
    sessions = [SimpleNamespace(engine=object(), timelines=None)]
    monkeypatch.setattr(PROCESS, "get", lambda: sessions[-1])
    monkeypatch.setenv("RINGLEADER_REPORT_FD", "")
    first, second = SessionMetrics(), SessionMetrics()
    known = first()
    assert first() is known and second() is not known and session_metrics() is not known
    sessions.append(SimpleNamespace(engine=object(), timelines=None))
    assert first() is not known and first().engine is sessions[-1].engine
