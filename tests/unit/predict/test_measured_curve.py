"""Curves of bench p2p and bench allreduce in place of stated networks."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.conftest import Call

from ringleader.bench import run_file
from ringleader.errors import RequestError
from ringleader.measurements.collective import CollectiveResult, CollectiveRun, CollectiveSeries, Timing
from ringleader.measurements.point_to_point import Place, PointToPointRun, Transfer
from ringleader.measurements.training import Arm as TrainingArm
from ringleader.measurements.training import LayerTime, StepSplit, TrainingRun
from ringleader.predict.models import model
from ringleader.predict.networks import BETWEEN, WITHIN, Network, all_reduce_of, link_of
from ringleader.predict.profile import profile_of_model
from ringleader.predict.step_model import Setup, predict
from ringleader.scaling import Context

CONTEXT = Context(command=("bench",))
SIZES = (1024, 1 << 20, 1 << 24, 1 << 26)


def pairs(*hosts: str) -> PointToPointRun:
    places = tuple(Place(rank=rank, host=host) for rank, host in enumerate(hosts))
    transfers = tuple(
        Transfer(source=a, target=b, size=size, latency=(1 + b) * (2e-5 + size / 1e9))
        for size in SIZES
        for a in range(len(hosts))
        for b in range(a + 1, len(hosts))
    )
    return PointToPointRun(name="p", context=CONTEXT, places=places, transfers=transfers)


def all_reduces(ranks: int = 8, per_host: int = 4, rate: float = 2e9) -> CollectiveRun:
    results = tuple(
        CollectiveResult(size=size, count=size // 4, in_place=Timing(seconds=1e-4 + size / rate))
        for size in SIZES
    )
    return CollectiveRun(
        name="a", context=CONTEXT, operation="allreduce", ranks=ranks, per_host=per_host, dtype="float32",
        redop="sum", series=(CollectiveSeries(implementation="ringleader", results=results),),
    )  # fmt: skip


def test_a_link_is_as_fast_as_its_slowest_pair() -> None:
    link = link_of(pairs("a", "b", "c"), "runs/p")
    assert link.seconds(1 << 24) == pytest.approx(3 * (2e-5 + (1 << 24) / 1e9))
    assert link.rate == pytest.approx(1e9 / 3)
    two = pairs("a", "b")
    both = link_of(replace(two, transfers=tuple(replace(t, both_ways_rate=1e8) for t in two.transfers)), "p")
    assert both.seconds(1 << 24) == pytest.approx(2 * (1 << 24) / 1e8)
    late = Transfer(source=0, target=1, size=1024, latency=0.5)
    found = link_of(replace(two, transfers=(late, *two.transfers[1:])), "runs/p")
    assert found.latency == pytest.approx(found.seconds(1 << 20)), "no longer than a larger message"
    with pytest.raises(RequestError, match="at least two sizes"):
        link_of(pairs("a", "a"), "runs/p")


def test_a_measured_all_reduce_counts_in_place_of_the_formula() -> None:
    measured = all_reduce_of(all_reduces(), "runs/a")
    assert measured.seconds(1 << 24, 8) == pytest.approx(1e-4 + (1 << 24) / 2e9, rel=1e-3)
    twice = measured.seconds(1 << 26, 16)
    assert twice == pytest.approx(1e-4 * 15 / 7 + (1 << 26) / 2e9 * (15 / 16) / (7 / 8), rel=1e-2)
    network = Network(name="n", between=BETWEEN["400gbe-roce"], within=WITHIN["nvlink"])
    profile = profile_of_model(model("vgg-16"), rate=500, batch=64)
    stated = Setup(network=network, per_host=4)
    slow = replace(stated, all_reduce=measured)
    assert predict(profile, slow, 16).efficiency < predict(profile, stated, 16).efficiency
    assert predict(profile, slow, 4) == predict(profile, stated, 4)  # on one host nothing was measured
    with pytest.raises(RequestError, match="allreduce of several"):
        all_reduce_of(replace(all_reduces(), operation="broadcast"), "runs/a")


def trained() -> TrainingRun:
    split = StepSplit(
        input=0.001, forward=0.01, backward=0.02, exchange=0.0, waiting=0.0, optimizer=0.002, other=0.0
    )
    layers = tuple(
        LayerTime(name=f"l{i}", parameters=1 << 20, bytes=4 << 20, backward_seconds=0.01) for i in range(2)
    )
    return TrainingRun(
        name="mlp", context=CONTEXT, model="mlp", parameters=2 << 20, gradient_bytes=8 << 20, batch=64,
        unit="samples", precision="float32", optimizer="sgd", data="synthetic", ranks=1, per_host=1,
        arms=(TrainingArm(name="uncoupled", rates=(64 / 0.033,), split=split),), layers=layers,
    )  # fmt: skip


def test_runs_of_every_kind_are_read_in_their_place(tmp_path: Path, call: Call) -> None:
    for name, run in (("t", trained()), ("p", pairs("a", "b")), ("a", all_reduces())):
        run_file.write(run, tmp_path / name)
    job, words = tmp_path / "t", ("--per-host", "4", "--ranks", "1,16")
    said = [call("predict", job, "--curve", tmp_path / curve, *words)[1] for curve in ("p", "a")]
    assert all("33.0 ms per step on one rank, 8 MiB of gradients" in one for one in said)
    assert said[0].splitlines()[5] != said[1].splitlines()[5]
    for wrong in ((tmp_path / "p",), (job, "--curve", job)):
        code, _, err = call("predict", *wrong)
        assert code == 2 and "curve" in err
