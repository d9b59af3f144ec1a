"""Trees that are damaged, huge or slow: never an exception, and what was not read is named."""

import json
import os
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fabric_hosts import MEMORY, tree

from ringleader.dataclass_json import document, from_document
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.readers import host, net_devices, pci_devices, rdma_devices, read_host
from ringleader.fabric.readers.sysfs_files import Files

JUNK = (
    b"",
    b"\xff\xfe\x00" * 9,
    b"-1",
    b"9" * 5000,
    b"0x" + b"f" * 3000,
    b"a: b: c\n" * 99,
    b"\0",
    "٣²".encode(),
)
DAMAGES = ("delete", "cut", "directory", "loop", "dangling", "fifo", "junk")


def damage(root: Path, path: str, kind: str, junk: bytes) -> None:
    place = root / path
    content = place.read_bytes() if place.is_file() and not place.is_symlink() else b""
    if place.is_dir() and not place.is_symlink():
        return
    place.unlink()
    {
        "delete": lambda: None,
        "cut": lambda: place.write_bytes(content[: len(content) // 2]),
        "junk": lambda: place.write_bytes(junk),
        "directory": place.mkdir,
        "loop": lambda: place.symlink_to(place.name),
        "dangling": lambda: place.symlink_to("nothing/here"),
        "fifo": lambda: os.mkfifo(place),
    }[kind]()


@settings(max_examples=25)
@given(
    name=st.sampled_from(("soft_rxe", "no_pma", "cloud_vm", "erdma")),
    places=st.lists(
        st.tuples(st.integers(0, 10_000), st.sampled_from(DAMAGES), st.sampled_from(JUNK)),
        min_size=1,
        max_size=40,
        unique_by=lambda one: one[0] % 128,
    ),
)
def test_a_damaged_tree_is_read_and_what_is_missing_is_named(name, places):
    described = tree(name)
    paths = [*described.files, *described.links]
    with tempfile.TemporaryDirectory(dir=MEMORY) as temporary:
        root = Path(temporary)
        described.write(root)
        kinds = {}
        for number, kind, junk in places:
            path = paths[number % 128 % len(paths)]
            # A link that is damaged already may have taken the directory of the next file with it.
            if path not in kinds and os.path.lexists(root / path):
                damage(root, path, kind, junk)
                kinds[path] = kind
        found = read_host(root, described.environ, ipv4=lambda: list(described.ipv4))
    assert not [one for one in found.unreadable if not one.path.startswith("/")], found.unreadable
    assert from_document(HostFacts, json.loads(json.dumps(document(found)))) == found
    named = {one.path for one in found.unreadable}
    assert {f"/{path}" for path in ("proc/meminfo", "proc/self/status") if kinds.get(path) == "fifo"} <= named


def many(root: Path, count: int) -> Path:
    """Write that many virtual functions of one adapter, whose files are all the same; two are usable."""
    described = tree("no_pma")
    described.write(root)
    for number in range(count):
        name = f"mlx5_{number + 1}"
        address = f"0000:{0x40 + number // 256:02x}:{number % 256 // 8:02x}.{number % 8}"
        (root / f"sys/class/infiniband/{name}").symlink_to("mlx5_0")
        (root / f"sys/class/net/vf{number}").symlink_to("lo")
        (root / f"sys/bus/pci/devices/{address}").symlink_to("0000:21:00.0")
    (root / "sys/bus/pci/devices/0000:21:00.0/physfn").symlink_to("../0000:21:01.0")
    for number in (77, 3999):
        verbs = root / f"sys/class/infiniband_verbs/uverbs{number}"
        verbs.mkdir()
        (verbs / "ibdev").write_text(f"mlx5_{number}")
        (root / f"dev/infiniband/uverbs{number}").touch()
    return root


def test_of_thousands_of_virtual_functions_those_in_use_are_read():
    with tempfile.TemporaryDirectory(dir=MEMORY) as temporary:
        root = many(Path(temporary), 4000)
        files = Files(root)
        rdma = rdma_devices.read(files)
        nets = net_devices.read(files, {"vf3000": ["10.0.0.1"]})
        cards = pci_devices.read(files)
    assert len(rdma["rdma_devices"]) == rdma_devices.MOST_DEVICES
    assert {"mlx5_0", "mlx5_77", "mlx5_3999"} <= {one.name for one in rdma["rdma_devices"]}
    assert len(nets) == net_devices.MOST_DEVICES
    assert "vf3000" in {one.name for one in nets}
    assert len(cards) <= pci_devices.MOST_VIRTUAL_FUNCTIONS + 2
    assert [one.reason for one in files.unreadable][:3] == [
        "3745 of 4001 devices not read",
        "3490 of 4002 interfaces not read",
        "3745 of 4001 virtual functions not read",
    ]
    assert files.reads < 70_000  # about a second on a slow machine


def test_an_area_that_hangs_does_not_stop_the_others(tmp_path, monkeypatch):
    hanging = threading.Event()
    areas = {
        "good": lambda files: {"kernel": "6.1"},
        "hangs": lambda files: hanging.wait(30) and {},
        "fails": lambda files: {}["x"],
    }
    monkeypatch.setattr(host, "_areas", lambda *arguments: areas)
    found = read_host(tmp_path, {}, seconds=2.0)
    hanging.set()
    assert found.kernel == "6.1"
    assert {one.path: one.reason for one in found.unreadable} == {
        "hangs": "it took too long",
        "fails": f"{host.AREA_FAULT}KeyError: 'x'",
    }


@pytest.mark.parametrize("name", ["no such", "file"])
def test_a_root_that_is_none(tmp_path, name):
    (tmp_path / "file").touch()
    found = read_host(tmp_path / name, {})
    assert (found.rdma_devices, found.net_devices, found.memory) == ((), (), None)
    late = read_host(environ={}, seconds=0.0)
    assert late.software.packages == {} and late.software.mpis == (), "not read in part"
