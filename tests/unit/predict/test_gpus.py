"""GPUs by name: every number has a source, and their hosts are what published all-reduces show."""

import tomllib
from importlib.resources import files

import pytest

from ringleader.predict.exchange_cost import Shape, all_reduce_seconds, collective_seconds
from ringleader.predict.gpus import gpu_called, gpus
from ringleader.predict.networks import BETWEEN, Network

DOCUMENT = tomllib.loads((files("ringleader.predict") / "gpus.toml").read_text(encoding="utf-8"))
SOURCES = DOCUMENT.pop("sources")


def test_the_gpus_that_people_name_are_known() -> None:
    assert set(gpus()) == {"a100", "h100", "h200", "b200", "gb200", "l40s", "mi300x"}


@pytest.mark.parametrize("name", sorted(DOCUMENT))
def test_every_number_has_a_source(name: str) -> None:
    for field, value in DOCUMENT[name].items():
        if field in ("names", "kind", "like"):
            continue
        number, source = value
        assert number > 0 and len(SOURCES[source]) > 10, field
        assert gpus()[name].source(field) == SOURCES[source]


def test_every_source_is_of_something() -> None:
    named = {
        value[1]
        for table in DOCUMENT.values()
        for field, value in table.items()
        if isinstance(value, list) and field != "names"
    }
    assert named == set(SOURCES)


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA B200", "b200"),
        ("AMD Instinct MI300X", "mi300x"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("Tesla T4", None),
        ("NVIDIA RTX A1000", None),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA A100-PCIE-40GB", None),
        ("NVIDIA A100 80GB PCIe", None),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H200 NVL", None),
    ],
)
def test_what_a_driver_calls_a_gpu(product: str, name: str | None) -> None:
    found = gpu_called(product)
    assert (found and found.name) == name
    near = gpu_called(product, any_board=True)
    unlike = product in ("Tesla T4", "NVIDIA RTX A1000")
    assert near is None if unlike else near is not None and near.name[-4:] in product.lower()


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


def busbw(network: Network, hosts: int, size: float, algorithm: str = "nccl") -> float:
    shape = Shape(hosts=hosts, per_host=8)
    return (
        2 * (shape.ranks - 1) / shape.ranks * size / all_reduce_seconds(algorithm, size, shape, network) / 1e9
    )


def test_sixty_four_hosts_of_h100_reach_what_clusters_report() -> None:
    # 350 to 390 GB/s with eight NDR ports; phases one after the other would give 141.
    assert 330 < busbw(usual("h100"), 64, 8e9) < 400
    assert 330 < busbw(usual("h100"), 64, 8e9, "hierarchical") < 400


def test_the_switch_sums_faster_than_a_ring_from_five_gpus_on() -> None:
    network = usual("h100")
    assert busbw(network, 1, 16e9) == pytest.approx(480, rel=0.03)
    assert busbw(network, 1, 16e9, "ring") == pytest.approx(367.6, rel=0.03)
    four = Shape(hosts=1, per_host=4)
    assert all_reduce_seconds("nccl", 8e9, four, network) == all_reduce_seconds("ring", 8e9, four, network)


def test_small_messages_take_the_protocol_with_the_least_latency() -> None:
    # LL: 6.6 µs, and 14 hops of 0.6 µs over NVLink (tuning.cc); Simple would take 8.4 and 14 times 3.4.
    shape = Shape(hosts=1, per_host=8)
    assert all_reduce_seconds("ring", 8, shape, usual("a100")) == pytest.approx(15.0e-6, rel=0.01)


def test_a_gather_takes_half_of_a_sum() -> None:
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
    both, size = Shape(hosts=8, per_host=8), 1e9
    whole = all_reduce_seconds("hierarchical", size, both, network)
    within = all_reduce_seconds("hierarchical", size, Shape(hosts=1, per_host=8), network)
    between = all_reduce_seconds("hierarchical", size, Shape(hosts=8, per_host=1), network)
    assert max(within, between) < whole < 1.1 * max(within, between) < within + between
