"""States that continue from a file: those of the same model do, others get an error that names it."""

import numpy
import pytest
import torch

from ringleader.adapters.commits import ProcessCommits
from ringleader.adapters.elastic import CommitError, ObjectState
from ringleader.adapters.variables_state import VariablesState
from ringleader.torch.elastic.state import RandomState, TorchState

FILE = "/files/commit-000000000010.ringleader"


class FromFile(ProcessCommits):
    """Commits that were read from a file."""

    def origin(self, number):
        return FILE


def torch_state(size=4, **kwargs):
    model = torch.nn.Linear(size, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return TorchState(model, optimizer, **{"random": RandomState(), "step": 0, **kwargs})


def object_state(**kwargs):
    return ObjectState(lambda value: value, lambda: 0, **kwargs)


def variables_state(size):
    def write(variables, values):
        for variable, value in zip(variables, values, strict=True):
            variable[...] = value

    return VariablesState(
        [numpy.zeros(size)], read=lambda all_of: [numpy.array(one) for one in all_of], write=write, step=0
    )


def goes_on(state, before, memory):
    """Have a state continue from what one before it has committed."""
    before._commits.memory = memory
    before.save()
    state._commits.memory = memory
    state.restore()


def test_a_script_that_starts_again_goes_on_from_its_file():
    for make in (torch_state, lambda: object_state(step=0), lambda: variables_state(100)):
        before, state = make(), make()
        before.step = 7
        goes_on(state, before, FromFile())
        assert state.step == 7


def test_a_file_of_another_model_or_script_is_refused():
    for before, state, why in (
        (lambda: torch_state(8), torch_state, r"size mismatch for weight"),
        (lambda: torch_state(epoch=1), torch_state, r"it holds epoch, model, .*, the state has model, "),
        (torch_state, lambda: object_state(step=0), r"it holds model, .*, the state has step"),
        (lambda: object_state(), lambda: object_state(step=0), r"it holds nothing, the state has step"),
        (lambda: variables_state(100), lambda: variables_state(200), r"could not broadcast"),
    ):
        with pytest.raises(
            CommitError, match=rf"^{FILE} is of another job: .*{why}.*checkpoint-dir"
        ) as raised:
            goes_on(state(), before(), FromFile())
        assert "\n" not in str(raised.value) and ".." not in str(raised.value)


def test_what_fails_to_load_from_memory_is_passed_on():
    with pytest.raises(RuntimeError, match="size mismatch") as raised:
        goes_on(torch_state(4), torch_state(8), ProcessCommits())
    assert not isinstance(raised.value, CommitError)
