"""States and the loop around training on one rank, and in a job that is not elastic."""

import copy
from dataclasses import dataclass
from threading import Event
from typing import Any, cast

import pytest
import torch

import ringleader.torch as hvd
from ringleader.adapters.commits import CommitError, ProcessCommits
from ringleader.adapters.elastic import HostMessages, HostUpdateResult, ObjectState, State
from ringleader.torch.elastic.state import (
    RandomState,
    StateHandler,
    get_handler_registry,
    set_handler_registry,
)


@pytest.fixture(autouse=True)
def joined():
    hvd.init()
    yield
    hvd.shutdown()


def model_and_optimizer(**words):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    return model, hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **words)


def train(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(8, 3)).square().mean().backward()
    optimizer.step()


def everything(state):
    return copy.deepcopy((state.model.state_dict(), state.optimizer.state_dict(), state.batch))


@pytest.mark.parametrize("shard", [False, True])
def test_restore_goes_back_to_the_last_commit(shard):
    model, optimizer = model_and_optimizer(shard=shard)
    state = hvd.elastic.TorchState(model, optimizer, batch=0)
    for _ in range(3):
        train(model, optimizer)
        state.batch += 1
        state.commit()
    kept = everything(state)
    train(model, optimizer)
    state.batch += 1
    state.restore()
    torch.testing.assert_close(everything(state), kept, rtol=0, atol=0)


def test_what_was_restored_is_trained_further_as_if_nothing_had_happened():
    model, optimizer = model_and_optimizer()
    state = hvd.elastic.TorchState(model, optimizer, batch=0, random=RandomState())
    train(model, optimizer)
    state.commit()
    train(model, optimizer)
    kept = everything(state)
    model(torch.randn(8, 3)).sum().backward()  # of a step that is not made
    state.restore()
    model(torch.randn(8, 3)).square().mean().backward()  # zero_grad may come after the step in a script
    assert torch.randn(1) is not None
    state.restore()
    train(model, optimizer)
    torch.testing.assert_close(everything(state), kept, rtol=0, atol=0)


def test_before_the_first_commit_restore_goes_back_to_the_beginning():
    state = hvd.elastic.TorchState(torch.nn.Linear(2, 2), words=["a"])
    state.model = other = torch.nn.Linear(2, 2)  # it takes the place of the first
    state.words.append("b")
    state.restore()
    assert state.words == ["a"]
    state.commit()
    weight = other.weight.detach().clone()
    with torch.no_grad():
        other.weight.zero_()
    state.restore()
    assert torch.equal(other.weight, weight)


def test_a_script_may_keep_its_state_in_a_class_of_its_own():
    calls = []

    class Own(State):
        def save(self):
            calls.append("save")

        def sync(self):
            calls.append("sync")

    @hvd.elastic.run
    def training(state):
        state.commit()
        raise hvd.HorovodInternalError("rank 1 has ended")

    with pytest.raises(hvd.HorovodInternalError, match="rank 1 has ended"):  # the job is not elastic
        training(Own(lambda value: value, hvd.rank))
    assert calls == ["sync", "save"]


def test_handlers_of_scripts_are_called():
    calls = []

    class Handler(StateHandler):
        save = restore = sync = None

    for name in ("save", "restore", "sync"):
        setattr(Handler, name, lambda self, name=name: calls.append(name))
    before = get_handler_registry()
    set_handler_registry([(Event, Handler), *before])
    try:
        state = hvd.elastic.TorchState(thing=Event())
        state.commit()
        state.restore()
        state.sync()
    finally:
        set_handler_registry(before)
    assert calls == ["save", "save", "restore", "sync", "save"]


@pytest.mark.parametrize(
    ("updates", "skip_sync"),
    [
        ([HostUpdateResult.removed], True),
        ([HostUpdateResult.added], False),
        ([HostUpdateResult.removed, HostUpdateResult.added], False),
    ],
)
def test_only_after_removals_all_ranks_agree_already(updates, skip_sync):
    state = ObjectState(lambda value: value, hvd.rank, batch=0)
    for at, update in enumerate(updates):
        state.on_hosts_updated(at + 1, update)
    with pytest.raises(hvd.elastic.HostsUpdatedInterrupt) as found:
        state.check_host_updates()
    assert found.value.skip_sync is skip_sync
    state.check_host_updates()  # acted on


def test_updates_that_are_old_do_not_count_and_those_before_a_save_are_not_lost():
    state = ObjectState(lambda value: value, hvd.rank, batch=0)
    state.on_hosts_updated(5, HostUpdateResult.added)
    state.save()
    assert state._host_messages.empty()
    state.save()
    with pytest.raises(hvd.elastic.HostsUpdatedInterrupt):
        state.check_host_updates()
    state.forget_updates()
    for number in (4, 5):  # 5 was acted on
        state.on_hosts_updated(number, HostUpdateResult.added)
        state.check_host_updates()
    state._last_updated_timestamp = 0
    state.on_hosts_updated(4, HostUpdateResult.added)
    with pytest.raises(hvd.elastic.HostsUpdatedInterrupt):
        state.check_host_updates()


@dataclass
class Preparing:
    """A rank whose launcher prepares an update, and tells of it, or gives it up, when it was asked often."""

    update: int
    asked: int = 0

    def updates(self):
        return (self.update if self.asked > 3 else 0), 1

    def preparing(self):
        self.asked += 1
        return self.asked <= 3

    def broken(self):
        return False


@pytest.mark.parametrize(("update", "empty"), [(1, False), (0, True)])
def test_a_script_that_asks_for_updates_waits_for_one_that_is_prepared(update, empty):
    member = Preparing(update)
    messages = HostMessages(member=lambda: member)
    assert not messages.take_news() and member.asked == 0, "training does not wait"
    assert messages.empty() is empty and member.asked == 4


@dataclass
class Restored:
    """A rank of a generation that continues from a commit."""

    restore: int
    commit_memory: ProcessCommits
    generation: int = 2


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_rank_0_does_not_go_on_from_a_commit_that_its_host_does_not_hold(number, fresh):
    state = ObjectState(lambda value: value, hvd.rank, batch=0)
    for batch in (1, 2):
        state.batch = batch
        state.save()  # commits 2 and 3; the first was made when the state was
    state.batch = 100  # in the middle of a step
    member = Restored(number, cast(ProcessCommits, state._commits.memory))
    if number == 1:
        with pytest.raises(CommitError, match=r"to continue from commit 1, but its host holds 2, 3$"):
            state.join(cast(Any, member), restores=True, fresh=fresh)
    else:
        state.join(cast(Any, member), restores=True, fresh=fresh)
        assert state.batch == {0: 100, 2: 1, 3: 2}[number]


def test_a_sharded_optimizer_is_kept_whole():
    model = torch.nn.Linear(3, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()), shard=True)
    state = hvd.elastic.TorchState(model, optimizer, batch=0)
    train(model, optimizer)
    state.commit()
    kept = everything(state)
    train(model, optimizer)
    state.restore()
    torch.testing.assert_close(everything(state), kept, rtol=0, atol=0)
