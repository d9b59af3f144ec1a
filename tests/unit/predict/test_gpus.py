"""GPUs by name: every number has a source, and their hosts are what published all-reduces show."""

import tomllib
from importlib.resources import files

import pytest
from tests import transcripts

from ringleader.predict.exchange_cost import Shape, all_reduce_seconds, collective_seconds
from ringleader.predict.gpus import gpu_called, gpus
from ringleader.predict.networks import BETWEEN, Network

DOCUMENT = tomllib.loads((files("ringleader.predict") / "gpus.toml").read_text(encoding="utf-8"))
SOURCES = DOCUMENT.pop("sources")


def test_every_number_has_a_source_and_every_source_is_of_something() -> None:
    assert set(gpus()) == {"a100", "h100", "h200", "b200", "gb200", "l40s", "mi300x"} == set(DOCUMENT)
    named = set()
    for name, table in DOCUMENT.items():
        for field in table.keys() - {"names", "kind", "like"}:
            number, source = table[field]
            assert number > 0 and len(SOURCES[source]) > 10, (name, field)
            assert gpus()[name].source(field) == SOURCES[source]
            named.add(source)
    assert named == set(SOURCES)


def test_what_a_driver_calls_a_gpu() -> None:
    """A GPU by its product's name, and what is near to it where any board will do."""

    def call(product: str) -> tuple[int, str, str]:
        found, near = gpu_called(product), gpu_called(product, any_board=True)
        return 0, f"{found and found.name}; {near and near.name}\n", ""

    transcripts.check("predict/products.txt", call)


def test_memories_are_those_that_drivers_report() -> None:
    """In MiB: a GPU of "80 GB" has 80 GiB, less what the driver keeps."""
    reported = {"a100": 81920, "h100": 81559, "h200": 143771, "b200": 183359, "gb200": 189471, "l40s": 46068}
    assert {name: gpus()[name].memory / 2**20 for name in reported} == reported
    assert gpus()["mi300x"].memory == 201310208 * 1024
    assert all("MiB" in gpus()[name].source("memory") for name in reported)


def usual(name: str) -> Network:
    gpu = gpus()[name]
    between = gpu.between()
    assert between is not None
    return gpu.network(between, gpu.ports)


def busbw(network: Network, hosts: int, size: float, algorithm: str = "nccl", per_host: int = 8) -> float:
    """In GB/s."""
    shape = Shape(hosts=hosts, per_host=per_host)
    moved = 2 * (shape.ranks - 1) / shape.ranks * size
    return moved / all_reduce_seconds(algorithm, size, shape, network) / 1e9


def test_busbw_is_what_clusters_report() -> None:
    network = usual("h100")
    # 350 to 390 GB/s with eight NDR ports; phases one after the other would give 141.
    assert 330 < busbw(network, 64, 8e9) < 400 and 330 < busbw(network, 64, 8e9, "hierarchical") < 400
    # The switch sums faster than a ring from five GPUs on.
    assert busbw(network, 1, 16e9) == pytest.approx(480, rel=0.03)
    assert busbw(network, 1, 16e9, "ring") == pytest.approx(367.6, rel=0.03)
    assert busbw(network, 1, 8e9, per_host=4) == busbw(network, 1, 8e9, "ring", per_host=4)


def test_small_messages_take_the_protocol_with_the_least_latency_and_a_gather_half_of_a_sum() -> None:
    # LL: 6.6 µs, and 14 hops of 0.6 µs over NVLink (tuning.cc); Simple would take 8.4 and 14 times 3.4.
    one = Shape(hosts=1, per_host=8)
    assert all_reduce_seconds("ring", 8, one, usual("a100")) == pytest.approx(15.0e-6, rel=0.01)
    shape, network = Shape(hosts=4, per_host=8), usual("h100")
    gather = collective_seconds("allgather", "nccl", 4e9, shape, network)
    assert gather == collective_seconds("reducescatter", "nccl", 4e9, shape, network)
    assert gather == pytest.approx(all_reduce_seconds("ring", 4e9, shape, network) / 2, rel=0.05)


def test_groups_beside_each_other_share_the_ports() -> None:
    network, one = usual("h100"), Shape(hosts=8, per_host=1)
    eight = Shape(hosts=8, per_host=1, beside=8)
    ratio = all_reduce_seconds("ring", 4e9, eight, network) / all_reduce_seconds("ring", 4e9, one, network)
    assert ratio == pytest.approx(8, rel=0.1)
    message = collective_seconds("sendrecv", "nccl", 5e9, Shape(hosts=2, per_host=1, beside=8), network)
    assert message == pytest.approx(5e9 / network.between.rate, rel=0.01)


def test_phases_of_a_hierarchical_sum_overlap() -> None:
    network = Network(name="n", between=BETWEEN["ndr-infiniband"], within=usual("a100").within, ports=8)

    def seconds(hosts: int, per_host: int) -> float:
        return all_reduce_seconds("hierarchical", 1e9, Shape(hosts=hosts, per_host=per_host), network)

    whole, within, between = seconds(8, 8), seconds(1, 8), seconds(8, 1)
    assert max(within, between) < whole < 1.1 * max(within, between) < within + between
