"""Results in recycled memory: whatever a script does with them, none changes under it, and little is kept."""

import copy
import importlib.util
import os
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ringleader.adapters import recycled_results as arrays
from ringleader.adapters.commits import SessionPeers
from ringleader.agents.elastic import commit_memory
from ringleader.engine.engine_session import Callbacks
from ringleader.engine.engine_settings import read_settings
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.torch import recycled_storages as tensors

pytestmark = [pytest.mark.torch]

COUNT = arrays.LEAST_BYTES // 4
SIZES = (COUNT, 2 * COUNT, (4 << 20) // 4 + 16)
LIMIT = 2


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A session with the default of the option, without other ranks."""
    made = SimpleNamespace(settings=read_settings({}), at_shutdown=Callbacks(), short_of_memory=Callbacks())
    monkeypatch.setattr(PROCESS, "session", made)
    yield made
    tensors.TENSORS.clear()
    arrays.ARRAYS.clear()


def new_tensor(count: int, value: float) -> torch.Tensor:
    """As an operation does: a result like a tensor, filled."""
    return tensors.result_like(torch.empty(count)).fill_(value)


def new_array(count: int, value: float) -> Any:
    array = arrays.result_like(np.empty(count, "float32"))
    array.fill(value)
    return array


# one after the other


def address(one: Any) -> int:
    return one.data_ptr() if hasattr(one, "data_ptr") else one.__array_interface__["data"][0]


@pytest.mark.parametrize("new", [new_tensor, new_array])
def test_results_are_made_where_dropped_ones_were(new: Callable[..., Any]) -> None:
    for count in SIZES:
        result, places = new(count, 1.0), set()
        for turn in range(6):
            result = new(count, float(turn))
            places.add(address(result))
        assert len(places) == 2, "a loop that replaces its result"
    del result
    held = [new(COUNT, 1.0), new(COUNT, 2.0)]
    last = address(held[1])
    held.clear()
    assert {address(new(COUNT, 3.0)) for _ in range(4)} == {last}, "the one that was used last"
    new(COUNT - 1, 0.0)
    assert 4 * (COUNT - 1) not in tensors.TENSORS._slots.keys() | arrays.ARRAYS._slots.keys(), "a short one"


def test_other_types_and_shapes_of_as_many_bytes_use_the_same_memory() -> None:
    first = tensors.result_like(torch.empty(512, COUNT // 512))
    place = first.data_ptr()
    shape = (512, COUNT // 512)
    assert (first.shape, first.stride(), first.dtype) == (shape, (COUNT // 512, 1), torch.float32)
    del first
    second = tensors.result_like(torch.empty(COUNT * 2, dtype=torch.bfloat16))
    assert (second.data_ptr(), second.dtype, second._version) == (place, torch.bfloat16, 1)
    assert not second._is_view()
    for count in (1000, COUNT):
        assert type(tensors.result_like(torch.ones(count).as_subclass(Subclass))) is Subclass


class Subclass(torch.Tensor):
    """What a script may make."""


def test_memory_that_was_shared_with_other_processes_is_not_used_again() -> None:
    result = new_tensor(COUNT, 1.0).share_memory_()
    place = result.data_ptr()
    del result
    assert all(not new_tensor(COUNT, 2.0).is_shared() for _ in range(3))
    assert all(address(owner) != place for owner, _place in tensors.TENSORS._slots[4 * COUNT])


def test_a_weak_reference_to_the_storage_counts() -> None:
    result = new_tensor(COUNT, 1.0)
    seen, place = weakref.ref(result.untyped_storage()), result.data_ptr()
    del result
    assert new_tensor(COUNT, 2.0).data_ptr() != place
    assert seen() is None or seen().data_ptr() == place


def test_a_debugger_that_was_there_at_the_import_changes_no_count() -> None:
    spec = importlib.util.find_spec(arrays.__name__)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.getprofile()
    sys.setprofile(lambda frame, _event, _argument: frame.f_locals and None)
    try:
        spec.loader.exec_module(module)
        places = {address(new_tensor(COUNT, float(turn))) for turn in range(4)}
        assert len(places) == 1, "one that looks on holds no result"
    finally:
        sys.setprofile(before)
    memory = module.ArrayMemory()
    held = memory.take(4 * COUNT)
    assert memory.take(4 * COUNT) is not held


@pytest.mark.parametrize("memory", [tensors.TENSORS, arrays.ARRAYS])
def test_a_reference_that_comes_while_others_are_counted(
    monkeypatch: pytest.MonkeyPatch, memory: arrays.ResultMemory
) -> None:
    """Another thread turns its weak reference, or its use in C++, into one of Python's."""
    memory.take(4 * COUNT)
    taken: list[Any] = []
    monkeypatch.setattr(memory, "is_used", taken.append)
    assert memory.take(4 * COUNT) is not taken[0]


def test_many_threads_never_get_the_same_memory() -> None:
    wrong: list[float] = []

    def work(number: int) -> None:
        for turn in range(200):
            value = float(1000 * number + turn)
            if not new_tensor(COUNT, value).eq(value).all() or not (new_array(COUNT, value) == value).all():
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_forked_child_keeps_nothing_and_changes_nothing() -> None:
    result, array = new_tensor(COUNT, 1.0), new_array(COUNT, 1.0)
    child = os.fork()
    if not child:
        good = tensors.TENSORS.nbytes == arrays.ARRAYS.nbytes == 0
        for memory in (result.numpy(), array):  # PyTorch's threads are the parent's
            memory[:] = 7.0
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert result.eq(1.0).all()
    assert (array == 1.0).all()


# what is kept


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_the_option_bounds_what_is_kept(session: Any, limit: int) -> None:
    session.settings = read_settings({"RINGLEADER_RECYCLED_RESULTS": f"{limit}"})
    held = [(new_tensor(COUNT, 1.0), new_array(COUNT, 1.0)) for _ in range(8)]
    assert tensors.TENSORS.nbytes == arrays.ARRAYS.nbytes == limit * 4 * COUNT
    session.at_shutdown.call()
    assert tensors.TENSORS.nbytes == arrays.ARRAYS.nbytes == 0
    del held


def test_the_option() -> None:
    for wrong in ("-1", "two", "²", "1025", "9" * 40):
        with pytest.raises(ValueError, match=f"RINGLEADER_RECYCLED_RESULTS is '{wrong}': use 0"):
            read_settings({"RINGLEADER_RECYCLED_RESULTS": wrong})
    for text, number in (("000", 0), ("0" * 40 + "7", 7), ("1024", 1024), (" ", LIMIT)):
        assert read_settings({"RINGLEADER_RECYCLED_RESULTS": text}).recycled_results == number


def test_sizes_out_of_use_are_given_back() -> None:
    for extra in range(2 * arrays.MOST_SIZES):
        new_tensor(COUNT + extra, 1.0)
    assert len(tensors.TENSORS._slots) == arrays.MOST_SIZES
    assert min(tensors.TENSORS._slots) == 4 * (COUNT + arrays.MOST_SIZES)


def test_everything_is_given_back_where_memory_is_short(session: Any, monkeypatch: Any) -> None:
    memory = tensors.TENSORS
    held = new_tensor(COUNT, 1.0)
    session.engine, session.ranks = None, SimpleNamespace(rank=0, size=1, local_rank=0, local_size=1)
    SessionPeers(session).give_back_memory()  # as a commit does
    assert memory.nbytes == 0
    monkeypatch.setattr(arrays, "CHECK_SECONDS", -1.0)
    monkeypatch.setattr(commit_memory, "memory_left", lambda: 4 * COUNT)
    new_tensor(2 * COUNT, 2.0)
    assert memory.nbytes == 0
    monkeypatch.setattr(commit_memory, "memory_left", lambda: None)
    new_tensor(2 * COUNT, 2.0)
    assert memory.nbytes == 8 * COUNT
    assert held.eq(1.0).all()


@pytest.mark.parametrize("error", [MemoryError, RuntimeError])
def test_memory_that_is_kept_goes_before_a_result_fails(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    memory, new = tensors.TENSORS, tensors.TENSORS.new
    new_tensor(2 * COUNT, 1.0)

    def scarce(nbytes: int) -> Any:
        if memory.nbytes:
            raise error("no memory is left")
        return new(nbytes)

    monkeypatch.setattr(memory, "new", scarce)
    assert new_tensor(COUNT, 2.0).eq(2.0).all()
    monkeypatch.setattr(memory, "new", lambda nbytes: (_ for _ in ()).throw(error("none at all")))
    with pytest.raises(error, match="none at all"):
        new_tensor(3 * COUNT, 3.0)


def test_without_pytorchs_count_nothing_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "_uses", None)
    new_tensor(COUNT, 1.0)
    kept = tensors.TENSORS._slots[4 * COUNT][0][0]
    assert tensors.TENSORS.take(4 * COUNT) is not kept


@pytest.mark.parametrize("change", ["flags.writeable", "dtype"])
def test_an_array_whose_base_the_script_changed_is_dropped(change: str) -> None:
    result = new_array(COUNT, 1.0)
    if change == "dtype":
        result.base.dtype = np.int8
    else:
        result.base.flags.writeable = False
    del result
    second = new_array(COUNT, 2.0)
    assert second.base.dtype == np.uint8
    assert [owner for owner, _place in arrays.ARRAYS._slots[4 * COUNT]] == [second.base]


# any order of anything


def _cycle(one: Any) -> list[Any]:
    ring: list[Any] = [one]
    ring.append(ring)
    return ring


ALIASES: dict[str, dict[str, Callable[[Any], Any]]] = {
    "tensor": {
        "itself": lambda one: one,
        "view": lambda one: one.view(-1)[1:],
        "bytes": lambda one: one.view(torch.uint8),
        "detached": lambda one: one.detach(),
        "data": lambda one: one.data,
        "numpy": lambda one: one.numpy(),
        "part of numpy": lambda one: one.numpy()[3:7],
        "memoryview": lambda one: memoryview(one.numpy()),
        "dlpack": lambda one: torch.from_dlpack(one),
        "numpy by dlpack": lambda one: np.from_dlpack(one),
        "capsule": lambda one: torch.utils.dlpack.to_dlpack(one),
        "storage": lambda one: one.untyped_storage(),
        "typed storage": lambda one: one.storage(),
        "saved": lambda one: (torch.ones(one.numel(), requires_grad=True) * one).grad_fn,
        "set": lambda one: torch.empty(0).set_(one),
        "closure": lambda one: lambda: one,
        "cycle": _cycle,
        "frozen": lambda one: copy.copy(one),
    },
    "array": {
        "itself": lambda one: one,
        "part": lambda one: one[5:],
        "reshaped": lambda one: one.reshape(2, -1).ravel(),
        "memoryview": lambda one: memoryview(one),
        "torch": torch.from_numpy,
        "dlpack": torch.from_dlpack,
        "buffer": lambda one: np.frombuffer(one, "float32"),
        "cycle": _cycle,
    },
}
"""How a script may hold on to memory: what still shows the values when the result itself is gone."""


def shown(kind: str, held: Any) -> float:
    last: dict[str, Callable[[], Any]] = {
        "saved": lambda: held._saved_other,
        "storage": lambda: torch.empty(0).set_(held),
        "typed storage": lambda: torch.empty(0).set_(held._untyped_storage),
        "bytes": lambda: held.view(torch.float32),
        "closure": lambda: held(),
        "cycle": lambda: held[0],
    }
    return float(last.get(kind, lambda: held)()[-1])


def change(draw: random.Random, result: torch.Tensor) -> None:
    changes: list[Callable[[], Any]] = [
        *(lambda: result.resize_(3), lambda: result.resize_(result.numel() * 2)),
        *(lambda: result.untyped_storage().resize_(0), result.share_memory_, result.set_),
        *(result.is_shared, lambda: copy.deepcopy(result)),
    ]
    draw.choice(changes)()


def drop(draw: random.Random, held: list[Any]) -> None:
    for _ in range(min(len(held), draw.choice([0, 0, 1, 2, 4]))):
        gone = [held.pop(draw.randrange(len(held)))]
        if draw.random() < 0.3:
            thread = threading.Thread(target=gone.clear)
            thread.start()
            thread.join()


def run_sequence(seed: int, steps: int) -> None:
    """Make, keep, alias, drop, resize and share results in a random order; what is held never changes."""
    draw = random.Random(seed)
    held: list[tuple[str, Any, float]] = []
    for step in range(steps):
        value, sort = float(step + 1), draw.choice(list(ALIASES))
        result = (new_tensor if sort == "tensor" else new_array)(draw.choice(SIZES), value)
        act = draw.random()
        if act < 0.45:
            for kind in draw.sample(list(ALIASES[sort]), draw.randint(1, 3)):
                held.append((kind, ALIASES[sort][kind](result), value))
        elif act < 0.55 and sort == "tensor":
            change(draw, result)
        del result
        drop(draw, held)
        for kind, alias, wanted in held:
            assert kind == "capsule" or shown(kind, alias) == wanted, (seed, step, kind)
        for memory in (tensors.TENSORS, arrays.ARRAYS):
            assert memory.nbytes <= LIMIT * 4 * sum(SIZES)
    for kind, alias, wanted in held:
        if kind == "capsule":  # can be taken once
            assert float(torch.utils.dlpack.from_dlpack(alias)[-1]) == wanted, (seed, kind)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        *((seed, 150) for seed in range(4)),
        *(pytest.param(seed, 1500, marks=pytest.mark.long) for seed in range(100, 140)),
    ],
)
def test_what_is_held_never_changes(seed: int, steps: int) -> None:
    run_sequence(seed, steps)
