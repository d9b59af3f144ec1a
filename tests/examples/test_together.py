"""Every sample exactly once per epoch, whatever the number of ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from together import ShardedBatches

pytestmark = pytest.mark.torch


def shards(samples: int, batch_size: int, size: int, drop_last: bool = False, seed: int = 1) -> list:
    """The batches of every rank."""
    return [
        ShardedBatches(
            samples=samples, batch_size=batch_size, rank=rank, size=size, seed=seed, drop_last=drop_last
        )
        for rank in range(size)
    ]


@given(
    samples=st.integers(1, 300),
    batch_size=st.integers(1, 40),
    size=st.integers(1, 9),
    epoch=st.integers(0, 99),
)
def test_every_sample_once(samples: int, batch_size: int, size: int, epoch: int) -> None:
    ranks = [list(shard.epoch(epoch)) for shard in shards(samples, batch_size, size)]
    assert sorted(index for rank in ranks for mine, _ in rank for index in mine) == list(range(samples))
    assert len({len(rank) for rank in ranks}) == 1, "ranks make different numbers of steps"
    for step in zip(*ranks, strict=True):
        assert {in_all for _, in_all in step} == {sum(len(mine) for mine, _ in step)}
        assert max(len(mine) for mine, _ in step) <= batch_size


@given(samples=st.integers(1, 300), batch_size=st.integers(1, 40), size=st.integers(1, 9))
def test_only_full_batches_where_asked(samples: int, batch_size: int, size: int) -> None:
    for shard in shards(samples, batch_size, size, drop_last=True):
        batches = list(shard.epoch(3))
        assert len(batches) == shard.per_epoch == samples // (batch_size * size)
        assert all(len(mine) == batch_size for mine, _ in batches)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_global_batches_do_not_depend_on_the_number_of_ranks(size: int) -> None:
    (alone,) = shards(1000, 128, 1)
    many = [list(shard.epoch(5)) for shard in shards(1000, 128 // size, size)]
    for step, (batch, _) in enumerate(alone.epoch(5)):
        assert sorted(batch) == sorted(index for rank in many for index in rank[step][0])


def test_order_changes_with_epoch_and_seed_and_nothing_else() -> None:
    (one,), (other) = shards(100, 10, 1), shards(100, 10, 1, seed=2)[0]
    assert list(one.epoch(0)) == list(one.epoch(0))
    assert list(one.epoch(0)) != list(one.epoch(1))
    assert list(one.epoch(0)) != list(other.epoch(0))
