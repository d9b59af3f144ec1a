"""Compose applications: whole directories as goldens, each rule as a row."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some
from tests.commands import finished

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob import yaml_text
from ringleader.plan.job import Host
from ringleader.render.compose.application import application, sshd_config
from ringleader.render.compose.application_files import File, KeyPair, Keys, compose_documents, files
from ringleader.render.compose.request import ComposeRequest, Mount, Network, Target, User, known_profiles
from ringleader.render.rdma_profiles import PROFILES

GOLDEN = Path(__file__).parent.parent / "golden" / "compose"
SHELLCHECK = shutil.which("shellcheck")

BASE = ComposeRequest(image="registry.example/team/torch:2.8", ranks=2)
TWO = (Host(name="node1", slots=8), Host(name="node2", slots=8))
CASES = {
    "one-host": replace(BASE, name="digits", ranks=4, gpus=2,
     mounts=(Mount(source="/home/alice/digits", target="/digits"),
     Mount(source="/data", target="/data", read_only=True)), env=(("NCCL_DEBUG", "INFO"),
     ("GREETING", 'price: $5 "net", it\'s'))),
    "one-host-bridge": replace(BASE, network=Network.BRIDGE),
    "one-host-rdma": replace(BASE, rdma="host-network", gpus=1),
    "one-container": replace(BASE, ranks=8, slots=8, gpus=8),
    "hosts": replace(BASE, ranks=None, hosts=TWO, gpus=8, rdma="host-network"),
    "hosts-user": replace(BASE, ranks=None,
     hosts=(Host(name="10.0.0.1"), Host(name="fd00::3", slots=4), Host(name="gpu_3")), slots=2,
     user=User(uid=1000, gid=1000), wait=60),
    "hosts-efa": replace(BASE, ranks=None, hosts=TWO, gpus=8, rdma="efa"),
    "hosts-erdma": replace(BASE, ranks=None, hosts=TWO, gpus=8, rdma="erdma"),
    "swarm": replace(BASE, target=Target.SWARM, ranks=4, slots=2, env=(("TZ", "UTC"),)),
    "swarm-hosts": replace(BASE, target=Target.SWARM, ranks=None, hosts=TWO),
}  # fmt: skip

WHOLE = ("one-host", "hosts-user", "swarm")
"""Kept with every file; of the others the compose files are kept."""


def written(request: ComposeRequest) -> tuple[File, ...]:
    """The files of an application with keys that say what they are."""
    asked = application(request)
    keys = Keys(
        login=KeyPair(private="PRIVATE KEY that opens every container\n", public="ssh-ed25519 LOGIN\n"),
        hosts=tuple(
            KeyPair(private=f"PRIVATE KEY of {one.service}\n", public=f"ssh-ed25519 OF-{one.service}\n")
            for one in asked.containers
        ),
    )
    return files(asked, keys, lambda document: yaml_text.text_of([document]))


def services(request: ComposeRequest) -> dict[str, dict[str, Any]]:
    """Every service of an application by its name, read back from YAML."""
    found: dict[str, dict[str, Any]] = {}
    for file in written(request):
        if file.path.endswith(".yaml"):
            found |= yaml.safe_load(file.text)["services"]
    return found


def what(**changes: Any) -> str:
    """All faults of a request, one a line."""
    with pytest.raises(RequestError) as caught:
        application(replace(BASE, **changes))
    return str(caught.value)


# --- whole applications -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    folder = GOLDEN / name
    found = {
        file.path: file.text for file in written(CASES[name]) if name in WHOLE or file.path.endswith(".yaml")
    }
    if os.environ.get("RINGLEADER_RENEW_GOLDENS") == "1":
        shutil.rmtree(folder, ignore_errors=True)
        for path, text in found.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    kept = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert found == kept, "RINGLEADER_RENEW_GOLDENS=1 writes it"


@pytest.mark.skipif(SHELLCHECK is None, reason="needs shellcheck")
@pytest.mark.process
def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    paths = []
    for name, request in CASES.items():
        for index, file in enumerate(one for one in written(request) if one.path.endswith("/start")):
            paths.append(tmp_path / f"{name}-{index}")
            paths[-1].write_text(file.text)
    done = subprocess.run(
        [str(SHELLCHECK), *map(str, paths)], stdout=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


# --- keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_each_private_key_is_in_one_file_of_one_container(name: str) -> None:
    asked, found = application(CASES[name]), written(CASES[name])
    holders = {file.path: file for file in found if "PRIVATE" in file.text}
    expected = {"mpihead": ["that opens every container"]}
    for one in asked.containers:
        expected.setdefault(one.service, []).append(f"of {one.service}")
    for service, words in expected.items():
        texts = [file.text for file in holders.values() if file.container == service]
        assert sorted(texts) == sorted(f"PRIVATE KEY {word}\n" for word in words)
    assert all(file.mode == 0o600 for file in holders.values())


@pytest.mark.parametrize("name", ["one-host", "one-host-rdma", "hosts", "one-host-bridge"])
def test_a_container_sees_its_own_folder_only(name: str) -> None:
    for service, document in services(CASES[name]).items():
        inside = [one["source"] for one in document["volumes"] if one["source"].startswith("./")]
        assert {source.split("/")[1] for source in inside} == {service}


def test_a_swarm_gives_the_login_key_to_mpihead_alone() -> None:
    holders = {
        service: {one["source"] for one in document["secrets"]}
        for service, document in services(CASES["swarm"]).items()
    }
    assert holders == {
        "mpihead": {"login-key", "host-key-mpihead"},
        "mpinode-1": {"host-key-mpinode-1"},
    }


# --- RDMA profiles: each either gives what its fact says, or is refused -----------------------------------

DOCKER_COLUMN = "a container needs /dev/infiniband, memlock -1 with IPC_LOCK, /dev/shm, the host's network"
FACTS = {
    "none": "a container without /dev/infiniband: NCCL and UCX take sockets",
    "host-network": DOCKER_COLUMN,
    "efa": f"{DOCKER_COLUMN}; FI_PROVIDER=efa in AWS's examples; huge pages are the host's",
    "erdma": f"{DOCKER_COLUMN}; no NFD label and no variable of its own",
    "shared": "rdma/hca_shared_devices_a is a resource of a Kubernetes device plugin",
    "sriov": "needs Multus: a network of Multus for each virtual function",
    "host-device": "needs Multus: a HostDeviceNetwork for each NIC",
    "aks-ib": "rdma/ib is a resource of a Kubernetes device plugin",
    "aks-shared": "rdma/shared_ib is a resource of a Kubernetes device plugin",
    "coreweave-ib": "rdma/ib is a resource of a Kubernetes device plugin",
    "oke-vf": "needs Multus: rdma-vf as often as VFs",
    "dra": "claims devices (DRA)",
}
"""What each row rests on; a new profile needs a new one."""


@pytest.mark.parametrize("profile", PROFILES)
def test_rdma_profile(profile: str) -> None:
    fact = FACTS[profile]
    for target in ({"ranks": 2}, {"ranks": None, "hosts": TWO}):
        request = replace(BASE, rdma=profile, **target)
        if profile not in known_profiles():
            said = what(rdma=profile, **target)
            word = next(word for word in ("Multus", "DRA", "device plugin") if word in fact)
            assert f"--rdma {profile}: compose cannot express it" in said and word in said
            assert "--rdma host-network" in said
            continue
        for document in services(request).values():
            devices = [] if profile == "none" else ["/dev/infiniband:/dev/infiniband"]
            assert document.get("devices", []) == devices, fact
            assert document.get("cap_add", []) == (["IPC_LOCK"] if devices else []), fact
            unlimited = {"soft": -1, "hard": -1} if devices else None
            assert document["ulimits"].get("memlock") == unlimited, fact
            assert document["network_mode"] == "host"
            expected = {"FI_PROVIDER": "efa"} if profile == "efa" else {}
            assert document.get("environment", {}) == expected, fact
            assert "privileged" not in document


def test_a_users_variable_wins_over_the_profiles() -> None:
    request = replace(CASES["hosts-efa"], env=(("FI_PROVIDER", "tcp"),))
    assert services(request)["mpihead"]["environment"] == {"FI_PROVIDER": "tcp"}


# --- sizes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "slots", "ports", "devices"),
    [
        ({"ranks": 1}, [1], [33], [[]]),
        ({"ranks": 3}, [1, 1, 1], [33, 34, 35], [[], [], []]),
        ({"ranks": 8, "gpus": 4}, [4, 4], [33, 34], [["0", "1", "2", "3"], ["4", "5", "6", "7"]]),
        ({"ranks": 4, "gpus": 1, "slots": 2}, [2, 2], [33, 34], [["0"], ["1"]]),
        ({"ranks": 4, "slots": 2, "ssh_port": 5000}, [2, 2], [5000, 5001], [[], []]),
        ({"ranks": 2, "user": User(uid=5)}, [1, 1], [2233, 2234], [[], []]),
        ({"ranks": 2, "network": Network.BRIDGE}, [1, 1], [33, 33], [[], []]),
    ],
)
def test_one_host(
    changes: dict[str, Any], slots: list[int], ports: list[int], devices: list[list[str]]
) -> None:
    request = replace(BASE, **changes)
    asked = application(request)
    assert [one.slots for one in asked.containers] == slots
    assert [one.port for one in asked.containers] == ports
    found = [gpus_of(document).get("device_ids", []) for document in services(request).values()]
    assert found == devices


@pytest.mark.parametrize(
    ("hosts", "changes", "slots"),
    [
        ((Host(name="a"), Host(name="b", slots=3)), {}, [1, 3]),
        ((Host(name="a"), Host(name="b", slots=3)), {"gpus": 8}, [8, 3]),
        ((Host(name="a"), Host(name="b")), {"gpus": 8, "slots": 4}, [4, 4]),
    ],
)
def test_several_hosts(hosts: tuple[Host, ...], changes: dict[str, Any], slots: list[int]) -> None:
    request = replace(BASE, ranks=None, hosts=hosts, **changes)
    assert [one.slots for one in application(request).containers] == slots
    for document in services(request).values():
        assert gpus_of(document).get("count") == changes.get("gpus")
        assert "hostname" not in document and "extra_hosts" not in document


def gpus_of(document: dict[str, Any]) -> dict[str, Any]:
    if "deploy" not in document:
        return {}
    (found,) = document["deploy"]["resources"]["reservations"]["devices"]
    assert isinstance(found, dict)
    return found


# --- what is wrong ----------------------------------------------------------------------------------------

SWARM = {"target": Target.SWARM}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"image": "a b"}, "--image: 'a b' is not a name"),
        ({"image": ""}, "--image"),
        ({"image": 'a"\nb'}, "--image"),
        ({"image": "$HOME"}, "--image"),
        ({"name": "My App"}, "--project-name"),
        ({"name": 'a"b'}, "--project-name"),
        ({"shm_size": "16 GB"}, "--shm-size"),
        ({"shm_size": "0g"}, "--shm-size"),
        ({"workdir": "here"}, "--workdir"),
        ({"env": (("A", "x\ny"),)}, "-x A: the value holds a line break"),
        ({"env": (("A", "x\x1by"),)}, "-x A"),
        ({"env": (("A", "x\udcffy"),)}, "-x A"),
        ({"ranks": None}, "-n: nobody says"),
        ({"ranks": 0}, "-n: 0 is not between"),
        ({"ranks": 3, "gpus": 2}, "3 ranks are no multiple of 2"),
        ({"hosts": TWO}, "-n and --hosts"),
        ({"ranks": 5000}, "more than 1000 containers"),
        ({"slots": 0}, "--slots"),
        ({"gpus": -1}, "--gpus"),
        ({"wait": 0}, "--wait"),
        ({"ssh_port": 0}, "--ssh-port: 0"),
        ({"ssh_port": 65535}, "the containers would take the ports 65535 to 65536"),
        ({"ssh_port": 33, "user": User(uid=1000)}, "only root may listen at port 33"),
        ({"target": Target.HOSTS}, "--on hosts: no hosts are named"),
        ({"target": Target.ONE_HOST, "hosts": TWO, "ranks": None}, "it is this host alone"),
        ({"ranks": None, "hosts": (Host(name="a@b"),)}, "--user says who"),
        ({"ranks": None, "hosts": (Host(name="fe80::1%eth0"),)}, "with a zone"),
        ({"ranks": None, "hosts": (Host(name="a"), Host(name="localhost"))}, "means another machine"),
        ({"ranks": None, "hosts": (Host(name="a"), Host(name="A"))}, "folder"),
        ({"rdma": "infiniband"}, "compose knows: none, efa, erdma, host-network"),
        ({"rdma": "host-network", "network": Network.BRIDGE}, "needs the host's network"),
        ({"ranks": None, "hosts": TWO, "network": Network.BRIDGE}, "cannot be reached"),
        ({"network": Network.OVERLAY}, "only a swarm has it"),
        ({**SWARM, "rdma": "host-network"}, "docker stack ignores both"),
        ({**SWARM, "rdma": "dra"}, "compose cannot express it"),
        ({**SWARM, "gpus": 1}, "generic resources"),
        ({**SWARM, "network": Network.HOST}, "docker stack ignores network_mode"),
    ],
)
def test_fault(changes: dict[str, Any], said: str) -> None:
    found = what(**changes)
    assert said in found
    assert len(found.splitlines()) == found.count("→") + 1, "one fault, one message"


def test_no_number_is_so_large_that_memory_runs_out() -> None:
    assert "more than 1000 containers" in what(ranks=10**15)


def test_all_faults_at_once() -> None:
    found = what(image="a b", name="A", shm_size="much", rdma="dra", gpus=-1)
    for option in ("--image", "--project-name", "--shm-size", "--rdma", "--gpus"):
        assert option in found


# --- values arrive as they were given ---------------------------------------------------------------------

VALUES = some.text(
    some.characters(exclude_categories=("Cs", "Cc")) | some.sampled_from("$'\"\\ \t#{}%`;&|<>*!~=:-,"),
    max_size=40,
)
ENVIRONMENTS = some.dictionaries(some.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True), VALUES, max_size=8)


@given(ENVIRONMENTS)
def test_variables_come_back_from_yaml(values: dict[str, str]) -> None:
    request = replace(BASE, ranks=1, env=tuple(values.items()))
    (document,) = compose_documents(application(request)).values()
    read = yaml.safe_load(yaml_text.text_of([document]))["services"]["mpihead"].get("environment", {})
    assert {name: interpolated(value) for name, value in read.items()} == values


@pytest.mark.process
def test_sshd_reads_every_value_as_it_was_given(tmp_path: Path, sshd_program: str) -> None:
    """``sshd -T`` prints what it understood."""
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=60)
    values = {
        "PLAIN": "x",
        "EMPTY": "",
        "SPACES": "two  words\tand a tab",
        "QUOTES": """it's "here" \\" \\' ''""",
        "BACK": "a\\nb\\\\c\\",
        "SIGNS": "$HOME ${X}%h #no comment; `id` $(id) = , *",
        "LETTERS": "Straße 訓練",
    }
    asked = application(replace(BASE, env=tuple(values.items())))
    text = sshd_config(asked, asked.head).replace("/etc/ringleader/host_key", str(key))
    (tmp_path / "config").write_text(text)
    done = finished([sshd_program, "-T", "-f", str(tmp_path / "config")], timeout=60)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("setenv ")]
    assert lines, "sshd 9.2 and newer say what they set"
    assert " ".join(line.removeprefix("setenv ") for line in lines) == " ".join(
        f"{name}={value}" for name, value in values.items()
    )


def interpolated(text: str) -> str:
    """What compose makes of a value: ``$$`` is a dollar, and a single one would begin a variable."""
    assert "$" not in text.replace("$$", ""), text
    return text.replace("$$", "$")
