"""Profiles of hosts: read, written, judged."""

import dataclasses
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fabric_hosts import NAMES, facts
from tests.unit.fabric.check_cases import hgx

from ringleader.errors import RequestError
from ringleader.fabric.check_result import Verdict
from ringleader.fabric.checks.profile import KEYS, judge_profile, parse, profile_of, to_toml
from ringleader.fabric.checks.quantities import QUANTITIES, WIRES
from ringleader.fabric.facts import UNLIMITED

VERSIONS = st.from_regex(r"\d{1,3}(\.\d{1,4}){0,3}(-[a-z]{1,5})?", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1).filter(
    lambda text: text.isprintable() and text.strip()
)
COUNTS = st.integers(0, 2**40)
RATES = st.integers(0, 10**13).map(float)
SIZES = st.integers(0, 2**50)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "rdma-wire": st.sampled_from(WIRES),
    **dict.fromkeys(("rdma-rate", "network-speed"), RATES),
    "memlock": SIZES | st.just(UNLIMITED),
    "nofile": COUNTS | st.just(UNLIMITED),
    "modules": st.lists(TEXTS).map(tuple),
    **dict.fromkeys(("gpu-name", "mpi"), TEXTS),
    **dict.fromkeys(("rdma-ports", "gpu-count", "pci-width", "network-mtu", "processors"), COUNTS),
    **dict.fromkeys(("gpu-memory", "shm", "memory"), SIZES),
    **dict.fromkeys(("rdma-firmware", "gpu-driver", "kernel", "nccl", "mpi-version", "python"), VERSIONS),
}


def test_every_key_is_of_a_quantity() -> None:
    assert set(FIELDS) == set(KEYS) <= set(QUANTITIES)


@given(st.fixed_dictionaries({}, optional=FIELDS))
def test_a_profile_is_read_back_as_it_was_written(values: dict[str, Any]) -> None:
    assert parse(tomllib.loads(to_toml(values))) == values


@pytest.mark.parametrize("name", NAMES)
def test_a_host_meets_its_own_profile(name: str) -> None:
    profile = profile_of(facts(name))
    assert parse(tomllib.loads(to_toml(profile))) == profile
    assert not [one for one in judge_profile(facts(name), profile) if one.verdict is Verdict.FAIL]


HIGHER: dict[str, Any] = {
    **{"rdma-ports": 9, "rdma-rate": 800e9, "rdma-wire": "roce", "rdma-firmware": "28.44.0"},
    **{"gpu-count": 16, "gpu-name": "B200", "gpu-memory": 192 << 30, "gpu-driver": "580.65.06"},
    **{"pci-width": 32, "network-mtu": 65520, "network-speed": 800e9, "nofile": UNLIMITED, "shm": 2 << 40},
    **{"processors": 1000, "memory": 4 << 40, "kernel": "6.11", "modules": ("ib_uverbs", "gdrdrv2")},
    **{"nccl": "2.28", "mpi": "MPICH", "mpi-version": "5.1", "python": "3.13"},
}


@pytest.mark.parametrize("field", HIGHER)
def test_a_host_fails_a_higher_profile(field: str) -> None:
    found = judge_profile(hgx(), {field: HIGHER[field]})
    assert found and {one.verdict for one in found} == {Verdict.FAIL}
    assert all(one.id == f"expect.{field}" and one.expected and one.remedy for one in found)


def test_limits_cards_that_count_and_what_is_not_known() -> None:
    assert [one.verdict for one in judge_profile(hgx(), {"memlock": 64 << 20})] == [Verdict.PASS]
    laptop = judge_profile(facts("laptop"), {"memlock": UNLIMITED})
    assert [(one.verdict, one.seen, one.expected) for one in laptop] == [(Verdict.FAIL, "8 MiB", "unlimited")]
    unknown = judge_profile(facts("laptop"), {"nccl": "2.21", "pci-width": 16, "rdma-rate": 1e9})
    assert {one.verdict for one in unknown} == {Verdict.SKIP}
    bare = dataclasses.replace(hgx(), modules=())
    assert "modules" in profile_of(hgx()) and "modules" not in profile_of(bare)
    # A card for management at 1500 says nothing of the network that the job uses.
    cards = tuple(
        dataclasses.replace(one, mtu=9000) if one.name.startswith("ibp") else one for one in hgx().net_devices
    )
    host = dataclasses.replace(hgx(), net_devices=cards)
    assert [one.verdict for one in judge_profile(host, {"network-mtu": 9000})] == [Verdict.PASS]
    assert profile_of(host)["network-mtu"] == 9000
    # GPUs that this container was not given do not count.
    gpus = tuple(dataclasses.replace(one, device_file=at == 0) for at, one in enumerate(hgx().gpus))
    place = gpus[1].pci_address
    slow = tuple(
        dataclasses.replace(one, link_width=8) if one.address == place else one for one in hgx().pci_devices
    )
    for owned, verdict in ((gpus, Verdict.PASS), (hgx().gpus, Verdict.FAIL)):
        host = dataclasses.replace(hgx(), gpus=owned, pci_devices=slow)
        assert [one.verdict for one in judge_profile(host, {"pci-width": 16})] == [verdict]


def test_all_faults_of_a_profile_are_told_at_once() -> None:
    text = """
    rdma = 3
    gpu = {count = -1, memory = "unlimited", color = "green"}
    limits = {memlock = "8 GB", nofile = 1.5}
    network = {speed = 400}
    host = {modules = [1], kernel = 6.8}
    [cloud]
    name = "x"
    """
    with pytest.raises(RequestError) as error:
        parse(tomllib.loads(text), "cluster.toml")
    wheres = [fault.where.removeprefix("cluster.toml").strip() for fault in error.value.faults]
    assert wheres == [
        *("", "gpu.count", "gpu.memory", "gpu.color", "limits.memlock", "limits.nofile", "network.speed"),
        *("host.modules", "host.kernel", ""),
    ]
    assert error.value.exit_code == 2
    units = '[limits]\nmemlock = "unlimited"\nshm = "1.5 GiB"\n[rdma]\nrate = "0.4 Tbit/s"\n'
    known = {"memlock": UNLIMITED, "shm": 3 << 29, "rdma-rate": 400e9}
    assert parse(tomllib.loads(units)) == known


@given(
    st.dictionaries(
        st.sampled_from([one.rule["key"].partition(".")[0] for one in KEYS.values()]),
        st.dictionaries(
            st.sampled_from([one.rule["key"].partition(".")[2] for one in KEYS.values()]),
            st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()),
        ),
    )
)
def test_nothing_but_a_request_error_comes_of_any_document(document: dict[str, Any]) -> None:
    try:
        profile = parse(document)
    except RequestError as error:
        assert error.faults
    else:
        judge_profile(hgx(), profile)
