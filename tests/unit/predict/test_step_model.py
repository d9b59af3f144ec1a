"""A step: parts that add up, bounds, and what would help."""

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.predict.exchange_cost import ALGORITHMS
from ringleader.predict.failures import GPU_HOURS, Failures, best_interval, goodput, useful
from ringleader.predict.forecast import limit_sentence, what_ifs
from ringleader.predict.models import NAMES, model
from ringleader.predict.networks import BETWEEN, WITHIN, Network
from ringleader.predict.profile import Profile, Segment, buckets_of, profile_of_model
from ringleader.predict.step_model import Setup, expected_largest, predict, size_below

SLOW = Network(name="10gbe-tcp", between=BETWEEN["10gbe-tcp"], within=WITHIN["pcie"])
FAST = Network(name="x", between=BETWEEN["ndr-infiniband"], within=WITHIN["nvlink"])
VGG = profile_of_model(model("vgg-16"), rate=154, batch=64)
RESNET = profile_of_model(model("resnet-50"), rate=219, batch=64)


@pytest.mark.parametrize(
    ("name", "millions"),
    [("alexnet", 61.0), ("bert-large", 336), ("inception-v3", 23.8), ("resnet-50", 25.5),
     ("resnet-101", 44.4), ("resnet-152", 60.0), ("vgg-16", 138.36)],
)  # fmt: skip
def test_models_have_the_parameters_that_they_are_known_for(name: str, millions: float) -> None:
    assert name in NAMES
    assert model(name).parameters / 1e6 == pytest.approx(millions, rel=0.005)
    assert sum(part for _, part in model(name).layers) == pytest.approx(1)


def test_buckets_are_whole_layers_from_the_last() -> None:
    def buckets(sizes: tuple[int, ...], **more: bool) -> list[tuple[float, float]]:
        profile = Profile(
            name="p", batch=1, before=1.0, segments=tuple(Segment(size=size, backward=1.0) for size in sizes)
        )
        return [(one.size, one.ready) for one in buckets_of(profile, fusion_bytes=40, **more)]

    assert buckets((10, 20, 30)) == [(50, 3.0), (10, 4.0)]
    # The engine sends a bucket before it would be too large.
    found = buckets((5, 100, 20, 30, 10), at_most=True)
    assert found == [(40, 3.0), (20, 4.0), (100, 5.0), (5, 6.0)]


@given(
    algorithm=st.sampled_from(ALGORITHMS),
    name=st.sampled_from(NAMES),
    between=st.sampled_from(sorted(BETWEEN)),
    hosts=st.integers(1, 500),
    per_host=st.sampled_from((1, 2, 8)),
    micro=st.integers(1, 4),
    overlap=st.booleans(),
)
def test_parts_add_up_and_nothing_is_better_than_linear(
    algorithm: str, name: str, between: str, hosts: int, per_host: int, micro: int, overlap: bool
) -> None:
    network = Network(name=between, between=BETWEEN[between], within=WITHIN["pcie"])
    profile, ranks = profile_of_model(model(name), rate=100, batch=32), hosts * per_host
    setup = Setup(network=network, per_host=per_host, algorithm=algorithm, micro_steps=micro, overlap=overlap)
    found = predict(profile, setup, ranks)
    assert found.step == pytest.approx(found.compute + found.exposed + found.waiting + found.fixed)
    assert 0 < found.efficiency <= 1 + 1e-9 and 0 <= found.exposed <= found.exchange + 1e-9
    faster = replace(network, between=replace(network.between, bandwidth=2 * network.between.bandwidth))
    better = predict(profile, replace(setup, network=faster), ranks)
    assert better.efficiency >= found.efficiency - 1e-9


def test_one_rank_loses_nothing_and_a_full_host_is_as_slow_as_measured() -> None:
    found = predict(VGG, Setup(network=SLOW, fixed=1.0, sharing=0.5), 1)
    assert found.efficiency == pytest.approx(1) and found.rate == pytest.approx(154)
    setup = Setup(network=SLOW, per_host=8, sharing=0.8, straggler=0.0, algorithm="hierarchical")
    assert predict(RESNET, setup, 8).compute == pytest.approx(RESNET.step_seconds / 0.8)


def test_the_slowest_of_many_is_as_late_as_theory_has_it() -> None:
    # Exact means of the largest of N standard normals (tables of order statistics).
    for count, mean in ((1, 0.0), (2, 0.5642), (10, 1.5388), (100, 2.5076), (1000, 3.2414)):
        assert expected_largest(count) == pytest.approx(mean, rel=0.05, abs=1e-12)


def test_the_size_that_falls_under_a_bound_is_the_first() -> None:
    def efficiency(ranks: int) -> float:
        return predict(VGG, Setup(network=SLOW, per_host=4), ranks).efficiency

    size = size_below(efficiency, 4, 0.6)
    assert size is not None and size > 4 and efficiency(size) < 0.6 <= efficiency(size - 4)
    assert size_below(lambda _ranks: 1.0, 4, 0.1, 4096) is None


@pytest.mark.parametrize(
    ("profile", "ranks", "change", "words"),
    [
        (VGG, 64, {}, ("exposed gradient communication", "Biggest gain: 25gbe-tcp")),
        (RESNET, 64, {"network": FAST, "straggler": 0.03}, ("waiting for the slowest", "accumulation steps")),
        (RESNET, 8, {"network": FAST, "straggler": 0.0}, ("no loss reaches", "No change that was tried")),
    ],
)
def test_what_helps_most_is_what_the_numbers_say(
    profile: Profile, ranks: int, change: dict[str, Any], words: tuple[str, ...]
) -> None:
    setup = replace(Setup(network=SLOW, per_host=4), **change)
    tried = what_ifs(setup, ranks, lambda one: predict(profile, one, ranks))
    assert [one.gain for one in tried] == sorted((one.gain for one in tried), reverse=True)
    text = limit_sentence(profile, setup, predict(profile, setup, ranks), tried)
    assert all(part in text for part in words)


def simulated(between: float, commit: float, recovery: float, interval: float, failures: int) -> float:
    """Return the part of the time that counts, until this many failures came: each at its own moment."""
    chance = random.Random(7)
    clock = done = 0.0
    for _ in range(failures):
        left = chance.expovariate(1 / between)  # exponential times have no memory: each failure starts anew
        clock += left
        if recovery and clock > left:
            left -= recovery
        segments = math.floor(max(0.0, left) / (interval + commit))
        done += segments * interval
    return done / clock


@pytest.mark.parametrize(
    ("between", "commit", "recovery", "interval"),
    [(3600.0, 30.0, 120.0, 400.0), (86_400.0, 60.0, 600.0, 3000.0), (600.0, 20.0, 100.0, 150.0)],
)
def test_the_closed_form_is_what_a_simulation_of_failures_shows(
    between: float, commit: float, recovery: float, interval: float
) -> None:
    assert useful(between, commit, recovery, interval) == pytest.approx(
        simulated(between, commit, recovery, interval, 200_000), rel=0.01
    )


@given(between=st.floats(60, 1e8), commit=st.floats(1e-3, 600), recovery=st.floats(0, 1e4))
def test_no_interval_leaves_more_than_the_best(between: float, commit: float, recovery: float) -> None:
    best = best_interval(between, commit)
    most = useful(between, commit, recovery, best)
    assert 0 <= most <= 1
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert useful(between, commit, recovery, factor * best) <= most * (1 + 1e-6)


def test_more_ranks_fail_more_often_and_lose_more() -> None:
    failures = Failures(commit=30.0, recovery=300.0)
    found = [goodput(failures, ranks) for ranks in (1, 8, 1024, 16_384, 100_000)]
    assert [one.goodput for one in found] == sorted((one.goodput for one in found), reverse=True)
    # 419 failures in 54 days of 16,384 GPUs: one in three hours.
    assert found[3].between / 3600 == pytest.approx(GPU_HOURS / 16_384) == pytest.approx(3.09, rel=0.01)
    assert 0.8 < found[3].goodput < 0.95
    assert best_interval(1e6, 10.0) == pytest.approx(math.sqrt(2 * 10 * 1e6), rel=0.01), "Young's"
    given = goodput(replace(failures, interval=10_000.0), 16_384)
    assert given.interval == 10_000 and given.goodput < found[3].goodput
    assert goodput(Failures(), 1024).goodput == pytest.approx(1.0, abs=1e-4), "without a cost"
    assert goodput(Failures(commit=1e6, hours=1.0), 1024).goodput == 0.0
