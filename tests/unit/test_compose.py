"""Compose applications: whole directories as goldens, each rule as a row."""

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some
from tests import transcripts
from tests.commands import finished
from tests.unit.conftest import Call

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
    texts = {file.text for one in CASES.values() for file in written(one) if file.path.endswith("/start")}
    paths = [tmp_path / str(number) for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    done = finished([str(SHELLCHECK), *map(str, paths)], timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", CASES)
def test_each_private_key_is_in_one_file_of_one_container(name: str) -> None:
    asked, found = application(CASES[name]), written(CASES[name])
    holders = [file for file in found if "PRIVATE" in file.text]
    expected = {"mpihead": ["that opens every container"]}
    for one in asked.containers:
        expected.setdefault(one.service, []).append(f"of {one.service}")
    for service, words in expected.items():
        texts = [file.text for file in holders if file.container == service]
        assert sorted(texts) == sorted(f"PRIVATE KEY {word}\n" for word in words)
    assert all(file.mode == 0o600 for file in holders)
    for service, document in services(CASES[name]).items():
        inside = [source for one in document["volumes"] if (source := one.get("source", "")).startswith("./")]
        assert {source.split("/")[1] for source in inside} <= {service}, "its own folder only"
        secrets = {one["source"] for one in document.get("secrets", ())}
        assert secrets <= {f"host-key-{service}", *(["login-key"] if service == "mpihead" else [])}


# --- RDMA profiles: each either gives what its fact says, or is refused -----------------------------------


@pytest.mark.parametrize("profile", sorted(known_profiles()))
def test_rdma_profile(profile: str) -> None:
    for target in ({"ranks": 2}, {"ranks": None, "hosts": TWO}):
        for document in services(replace(BASE, rdma=profile, **target)).values():
            devices = [] if profile == "none" else ["/dev/infiniband:/dev/infiniband"]
            assert document.get("devices", []) == devices
            assert document.get("cap_add", []) == (["IPC_LOCK"] if devices else [])
            assert document["ulimits"].get("memlock") == ({"soft": -1, "hard": -1} if devices else None)
            assert document["network_mode"] == "host" and "privileged" not in document
            # As in AWS's examples.
            assert document.get("environment", {}) == ({"FI_PROVIDER": "efa"} if profile == "efa" else {})


def test_a_users_variable_wins_over_the_profiles() -> None:
    request = replace(CASES["hosts-efa"], env=(("FI_PROVIDER", "tcp"),))
    assert services(request)["mpihead"]["environment"] == {"FI_PROVIDER": "tcp"}


@pytest.mark.parametrize(
    ("changes", "slots", "ports", "devices"),
    [
        ({"ranks": 3}, [1, 1, 1], [33, 34, 35], ["", "", ""]),
        ({"ranks": 8, "gpus": 4}, [4, 4], [33, 34], ["0123", "4567"]),
        ({"ranks": 4, "gpus": 1, "slots": 2}, [2, 2], [33, 34], ["0", "1"]),
        ({"ranks": 4, "slots": 2, "ssh_port": 5000}, [2, 2], [5000, 5001], ["", ""]),
        ({"ranks": 2, "user": User(uid=5)}, [1, 1], [2233, 2234], ["", ""]),
        ({"ranks": 2, "network": Network.BRIDGE}, [1, 1], [33, 33], ["", ""]),
    ],
)
def test_one_host(changes: dict[str, Any], slots: list[int], ports: list[int], devices: list[str]) -> None:
    request = replace(BASE, **changes)
    asked = application(request)
    assert [(one.slots, one.port) for one in asked.containers] == list(zip(slots, ports, strict=True))
    found = [gpus_of(document).get("device_ids", []) for document in services(request).values()]
    assert ["".join(ids) for ids in found] == devices


def gpus_of(document: dict[str, Any]) -> dict[str, Any]:
    if "deploy" not in document:
        return {}
    (found,) = document["deploy"]["resources"]["reservations"]["devices"]
    assert isinstance(found, dict)
    return found


def test_every_profile_is_known_or_refused(call: Call) -> None:
    transcripts.check("compose/wrong.txt", call, "render", "compose", "--image", "team/torch:2.8")
    refused = re.findall(r"--rdma ([\w-]+): compose cannot", (GOLDEN / "wrong.txt").read_text())
    assert {*PROFILES} - {*known_profiles()} == {*refused}


@pytest.mark.parametrize("value", ["x\ny", "x\x1by", "x\udcffy"])
def test_values_that_no_file_can_hold(value: str) -> None:
    with pytest.raises(RequestError, match="-x A: the value holds"):
        application(replace(BASE, env=(("A", value),)))
    with pytest.raises(RequestError, match="--image"):
        application(replace(BASE, image=f"a{value}"))


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
    key, config = tmp_path / "key", tmp_path / "config"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=60)
    values = {
        "EMPTY": "",
        "SPACES": "two  words\tand a tab",
        "QUOTES": """it's "here" \\" \\' ''""",
        "BACK": "a\\nb\\\\c\\",
        "SIGNS": "$HOME ${X}%h #no comment; `id` $(id) = , *",
        "LETTERS": "Straße 訓練",
    }
    asked = application(replace(BASE, env=tuple(values.items())))
    config.write_text(sshd_config(asked, asked.head).replace("/etc/ringleader/host_key", str(key)))
    done = finished([sshd_program, "-T", "-f", str(config)], timeout=60)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("setenv ")]
    assert lines, "sshd 9.2 and newer say what they set"
    said = " ".join(line.removeprefix("setenv ") for line in lines)
    assert said == " ".join(f"{name}={value}" for name, value in values.items())


def interpolated(text: str) -> str:
    """What compose makes of a value: ``$$`` is a dollar, and a single one would begin a variable."""
    assert "$" not in text.replace("$$", ""), text
    return text.replace("$$", "$")
