"""Commits: what ranks write together is what they read, and what cannot be written is named on all ranks."""

import re
import threading
from types import SimpleNamespace

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.commit_ranks import Job

from ringleader.adapters import commits as commits_of_adapters
from ringleader.adapters.commit_layout import (
    BLOCK,
    PAGE,
    Captured,
    UnpicklableError,
    checksum_of,
    lay_out,
    next_pieces,
    read_commit,
    take_apart,
    write_slice,
)
from ringleader.adapters.commits import CHECKED_ARRAYS, CHECKED_BYTES, CHUNK_BYTES, CommitError, Commits
from ringleader.agents.elastic.commit_memory import CommitStore
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.torch.tensor_bytes import TensorCodec, device_checksum


def late_difference(rank):
    """Arrays of which the last differs, behind what one commit compares."""
    last = torch.zeros(3 * CHECKED_BYTES, dtype=torch.uint8)
    last[3 * CHECKED_BYTES // 4 * 3 :] = rank + 1
    return [*(torch.zeros(8, dtype=torch.uint8) for _ in range(2 * CHECKED_ARRAYS)), last]


def content(**values):
    return lambda: {name: Captured(value=value) for name, value in values.items()}


def read(commits, name, number=None):
    found = commits.read(commits.newest() if number is None else number)
    return found.value(name, commits.codec, copy=True)


def on_host(job, host):
    commits = Commits(TensorCodec())
    commits.memory = job.memory_of(host * job.per_host)
    return commits


@pytest.mark.parametrize(
    "state",
    [
        lambda rank: torch.full((50_000,), float(rank)),
        lambda rank: torch.from_numpy(numpy.random.default_rng(rank).permutation(200_000)),
        lambda rank: [torch.full((50_000,), 1.0), torch.full((50_000,), 2.0)][:: 1 - 2 * rank],
        late_difference,
    ],
    ids=["values", "order", "order of arrays", "late"],
)
def test_replicas_that_differ_are_not_mixed(state):
    job = Job(2, 2)

    def act(rank, peers):
        job.joined(Commits(TensorCodec()), rank, peers).write(content(model=state(rank)), [0])

    assert job.run(act) == [None] * 2
    torch.testing.assert_close(read(on_host(job, 0), "model"), state(0), rtol=0, atol=0)


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(10.0),
        torch.zeros(0, 4),
        torch.arange(24, dtype=torch.int16).view(2, 3, 4).transpose(0, 2),
        torch.randn(3, 5).to(torch.bfloat16),
        torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
        torch.ones(4, requires_grad=True),
        torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (4,), check_invariants=True),
        numpy.arange(1000, dtype="float32").reshape(10, 100)[:, ::2],
        numpy.array(["words", "in", "it"], dtype=object),
        {"deep": [torch.ones(2), {"lr": 0.1, 3: (numpy.float64(2.5), None)}]},
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}",
)
def test_any_value_comes_back(value):
    commits = Commits(TensorCodec())
    commits.write(content(value=value), [0])
    found = read(commits, "value")
    torch.testing.assert_close(found, value) if isinstance(value, torch.Tensor) else None
    assert repr(found) == repr(value)


def test_a_commit_keeps_its_values_when_they_change_later():
    commits, model, steps = Commits(TensorCodec()), torch.ones(1000), [1, 2]
    commits.write(content(model=model, steps=steps), [0])
    model.add_(1)
    steps.append(3)
    read(commits, "model").add_(5)
    assert torch.equal(read(commits, "model"), torch.ones(1000)), "what is read with a copy is not in it"
    assert read(commits, "steps") == [1, 2]
    commits.write(content(model=model, steps=steps), [0])
    assert torch.equal(read(commits, "model"), torch.full((1000,), 2.0))
    assert torch.equal(read(commits, "model", 1), torch.ones(1000))


@given(st.lists(st.integers(0, 300), min_size=1, max_size=20), st.integers(8, 400), st.integers(1, 5))
def test_pieces_that_are_compared_make_the_whole(sizes, most_bytes, most_arrays):
    seen = {at: set() for at in range(len(sizes))}
    start, turns = 0, 0
    while start < sum(sizes):
        pieces, end = next_pieces(sizes, start, most_bytes, most_arrays)
        assert end > start
        assert len(pieces) <= most_arrays
        for at, begin, stop in pieces:
            assert begin % 8 == 0 and (stop % 8 == 0 or stop == sizes[at])
            seen[at] |= set(range(begin, stop))
        start, turns = end, turns + 1
    assert all(seen[at] == set(range(nbytes)) for at, nbytes in enumerate(sizes)), (sizes, turns)


@given(
    sizes=st.lists(st.tuples(st.integers(0, 30_000), st.booleans()), min_size=1, max_size=12),
    local_size=st.integers(1, 5),
)
def test_the_slices_of_a_host_make_the_whole(sizes, local_size):
    codec = TensorCodec()
    tensors = [torch.randint(0, 255, (count,), dtype=torch.uint8) for count, _differs in sizes]
    differing = frozenset(id(one) for one, (_count, differs) in zip(tensors, sizes, strict=True) if differs)
    part = take_apart("model", Captured(value=tensors, differing=differing), codec)
    layout = lay_out([part], equal=True)
    memory = bytearray(layout.head_at)
    written = 0
    for local_rank in range(local_size):
        start, stop = layout.slice_of(local_rank, local_size)
        written += stop - start
        write_slice(memoryview(memory), layout, start, stop)
    write_slice(memoryview(memory), layout, layout.end_of_equal, layout.head_at)
    assert written == layout.end_of_equal - PAGE
    for start, tensor in zip(layout.starts["model"], tensors, strict=True):
        assert bytes(memory[start : start + tensor.numel()]) == bytes(tensor.tolist())


def test_each_rank_of_a_host_writes_its_slice_alone(monkeypatch):
    job, tensor, written = Job(2, 2), torch.arange(1 << 20, dtype=torch.uint8), []

    def noting(memory, layout, start, stop):
        written.append(stop - start)
        write_slice(memory, layout, start, stop)

    monkeypatch.setattr(commits_of_adapters, "write_slice", noting)
    job.run(lambda rank, peers: job.joined(Commits(TensorCodec()), rank, peers).write(content(a=tensor), [0]))
    assert sorted(written)[-2:] == [1 << 19, 1 << 19] and sum(written) < (1 << 20) + PAGE


def test_running_statistics_are_those_of_the_first_rank_of_a_host():
    job = Job(2, 2)

    def act(rank, peers):
        weight, mean = torch.ones(5000), torch.full((5000,), float(rank))
        captured = Captured(value=[weight, mean], differing=frozenset({id(mean)}))
        job.joined(Commits(TensorCodec()), rank, peers).write(lambda: {"model": captured}, [0])

    job.run(act)
    commits = on_host(job, 0)
    weight, mean = read(commits, "model")
    assert torch.equal(weight, torch.ones(5000))
    assert torch.equal(mean, torch.zeros(5000))


def test_the_values_of_each_rank_are_on_every_host():
    job = Job(4, 2)

    def act(rank, peers):
        commits = job.joined(Commits(TensorCodec()), rank, peers)
        commits.write(lambda: {"random": Captured(value=None, per_rank=f"of rank {rank}")}, [0])

    job.run(act)
    for host in range(len(job.hosts)):
        found = read_commit(on_host(job, host).memory.view(1))
        assert [found.own("random", rank) for rank in range(5)] == [*(f"of rank {r}" for r in range(4)), None]


@pytest.mark.parametrize(("after", "held"), [(None, (1,)), (4, ())], ids=["", "what it took over"])
def test_all_ranks_are_told_of_one_that_cannot_commit(after, held):
    job = Job(3, 3)

    def act(rank, peers):
        commits = job.joined(Commits(TensorCodec()), rank, peers)
        if after is None:
            commits.write(content(x=1), [0])
        commits.write(content(x=threading.Lock() if rank == 1 else 2), [0], after=after)

    for result in job.run(act):
        assert isinstance(result, CommitError)
        assert "rank 1 cannot commit its state: 'x' of the state" in str(result)
    assert job.hosts[0].held() == held


def test_what_all_have_just_taken_over_is_the_next_commit_of_every_host():
    job, model = Job(4, 2), torch.randn(1000)

    def act(rank, peers):
        commits = job.joined(Commits(TensorCodec()), rank, peers)
        commits.number = 7 if rank < 2 else 0  # the second host is new
        assert commits.write(content(model=model), [rank], after=7) == [3]
        assert commits.write(content(model=model + 1), [rank]) == [3]

    assert job.run(act) == [None] * 4
    for host in (0, 1):
        assert sorted(on_host(job, host).memory.held()) == [8, 9]
        torch.testing.assert_close(read(on_host(job, host), "model", 8), model, rtol=0, atol=0)


def test_all_ranks_are_told_of_a_host_without_memory_and_the_commit_before_stays():
    job = Job(4, 2)
    job.hosts[1] = CommitStore(lambda total, more: "the host has 1 MiB left" if more > 1 << 20 else "")

    def act(rank, peers):
        commits = job.joined(Commits(TensorCodec()), rank, peers)
        for count in (10, 1 << 20):
            commits.write(content(x=torch.zeros(count)), [0])

    for result in job.run(act):
        assert isinstance(result, CommitError)
        assert "rank 2 cannot commit its state: a commit of 41" in str(result)
        assert "the host has 1 MiB left" in str(result)
    assert [list(host.held()) for host in job.hosts] == [[1], [1]]


def offered(job, values, numbers, *, shared=True):
    def act(rank, peers):
        commits = job.joined(Commits(TensorCodec()), rank, peers)
        commits.number = numbers[rank]
        return commits.offer(content(**values[rank]), peers.object, shared=shared)

    return job.run(act)


def test_ranks_without_a_part_get_it_in_pieces():
    model = [torch.full((CHUNK_BYTES // 2 + 1,), at, dtype=torch.uint8) for at in range(5)]
    other = [torch.zeros_like(one) for one in model]
    found = offered(Job(2, 1), [{"model": model}, {"model": other}], [0, 0])
    assert all(torch.equal(one, two) for one, two in zip(found[1].values["model"], model, strict=True))
    state = {"momentum": torch.ones(10), "step": 5}
    (_, other) = offered(Job(2, 1), [{"optimizer": state}, {"optimizer": {}}], [3, 3])
    assert torch.equal(other.values["optimizer"]["momentum"], torch.ones(10))
    assert other.values["optimizer"]["step"] == 5


def test_ranks_of_one_commit_exchange_no_arrays():
    job, model = Job(2, 1), torch.randn(1000)
    found = offered(job, [{"model": model, "lr": 2}, {"model": model.clone(), "lr": 1}], [7, 7])
    assert [one.values for one in found] == [{}, {"lr": 2}]
    assert [(one.moved, one.same_commit) for one in found] == [(False, True)] * 2
    assert [one.broadcast_bytes for one in job.peers] == [0, 0]


def test_arrays_that_were_changed_since_the_commit_travel_alone():
    job, large, small = Job(2, 1), torch.randn(100_000), torch.randn(10)
    mine = {"model": [large, small + 1]}
    found = offered(job, [mine, {"model": [large.clone(), small]}], [7, 7])
    torch.testing.assert_close(found[1].values["model"], mine["model"], rtol=0, atol=0)
    assert [one.broadcast_bytes for one in job.peers] == [40, 40]
    assert all(one.moved and one.same_commit for one in found)


def test_ranks_without_the_commit_get_everything():
    for numbers in ([7, 0], [0, 0], [7, 6]):
        job = Job(2, 1)
        models = [[torch.tensor([1.0, 2.0])], [torch.tensor([2.0, 1.0])]]  # the sums of their bytes are equal
        found = offered(job, [{"model": one} for one in models], numbers)
        torch.testing.assert_close(found[1].values["model"], models[0], rtol=0, atol=0)
        assert not found[0].same_commit


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 4096, 4099, 8 * BLOCK, 16 * BLOCK + 8, 24 * BLOCK + 13])
@pytest.mark.parametrize("offset", [0, 1, 6, 8])
def test_the_checksum_of_a_tensor_is_that_of_its_bytes_wherever_it_is(length, offset):
    flat = torch.randint(0, 255, (offset + length,), dtype=torch.uint8)[offset:]
    taken = TensorCodec().take(flat)
    assert taken is not None
    expected = checksum_of(memoryview(flat.numpy().tobytes()))
    assert taken.checksum(0, length) == device_checksum([flat]) == expected
    assert 0 <= expected < 1 << 62


@given(st.data())
def test_the_checksum_changes_where_two_elements_change_places(data):
    kind = data.draw(st.sampled_from(["int64", "int32", "float64", "float32", "float16", "uint8"]))
    size = data.draw(st.sampled_from([2, 100, BLOCK, 3 * BLOCK + 5]))
    one, other = data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=2, unique=True))
    values = (numpy.arange(size) % 128).astype(kind)
    values[one], values[other] = data.draw(st.sampled_from([(1, 2), (0, 1), (3, 64)]))
    swapped = values.copy()
    swapped[one], swapped[other] = values[other], values[one]
    assert checksum_of(memoryview(values.tobytes())) != checksum_of(memoryview(swapped.tobytes()))


@pytest.mark.parametrize("refused", [None, 1])
def test_ranks_give_back_what_they_keep_before_a_commit_is_refused(refused):
    """Both ranks of a host have to, as it counts for all; a third one's host has room."""
    job, kept = Job(3, 2), {0, 1}
    job.hosts[0].close()
    job.hosts[0] = CommitStore(lambda total, more: f"{len(kept)} ranks keep memory" if kept else "")

    def act(rank, peers):
        peers.give_back_memory = lambda: kept.discard(rank - (rank == refused))
        commits = job.joined(Commits(TensorCodec()), rank, peers)
        return commits.write(content(weight=torch.arange(100.0)), [rank])

    results = job.run(act)
    if refused is None:
        assert results == [[2]] * 3
    else:
        assert [type(one) for one in results] == [CommitError] * 3
        assert re.match("rank 0 cannot commit its state.*1 ranks keep memory", str(results[2]))
    assert [store.held() for store in job.hosts] == [(1,) if refused is None else ()] * 2


@pytest.mark.parametrize("overwritten", [False, True])
@pytest.mark.parametrize("cured", [False, True])
def test_a_state_that_cannot_be_taken_apart_for_want_of_memory_is_tried_again(cured, overwritten):
    """All ranks do both, and a later commit compares the same bytes on all of them."""
    job = Job(2, 2)
    weight = torch.arange(3.0 * CHECKED_BYTES)

    def act(rank, peers):
        given_back = []
        peers.give_back_memory = lambda: given_back.append(rank)
        commits = job.joined(Commits(TensorCodec()), rank, peers)
        for _ in range(3):
            commits.write(content(weight=weight), [0])

        def captured():
            if rank == 1 and not (cured and given_back):
                raise MemoryError
            return {"weight": Captured(value=weight)}

        try:
            commits.write(captured, [rank], after=3 if overwritten else None)
        except CommitError as error:
            assert not cured and "rank 1 cannot commit its state: MemoryError" in str(error)
        commits.write(content(weight=weight), [0])
        return commits.number, commits._equal, len(given_back)

    assert job.run(act) == [(5 if cured else 4, True, 1)] * 2


def test_a_rank_that_commits_by_itself_gives_back_what_it_keeps(monkeypatch):
    kept = [1]
    monkeypatch.setattr(
        PROCESS, "session", SimpleNamespace(short_of_memory=SimpleNamespace(call=kept.clear)), raising=False
    )

    def captured():
        if kept:
            raise MemoryError
        return {"weight": Captured(value=torch.arange(10.0))}

    commits = Commits(TensorCodec())
    commits.write(captured, [0])
    assert commits.newest() == 1


def test_a_value_that_cannot_be_pickled_is_named():
    with pytest.raises(UnpicklableError, match=r"'loader' of the state .*lock.* cannot be pickled"):
        Commits(TensorCodec()).write(content(step=1, loader=threading.Lock()), [0])
