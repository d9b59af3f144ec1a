"""Keys as OpenSSH's own programs see them."""

import shutil
import subprocess

import pytest
from tests.commands import finished
from tests.mpijobs import mpijob

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob.parser import read
from ringleader.kubernetes.objects import ssh_secret
from ringleader.kubernetes.objects.ssh_secret import TYPES, generate

WORKERS = ("train-worker-*",)


@pytest.fixture(scope="module")
def ssh_keygen():
    found = shutil.which("ssh-keygen")
    if found is None:
        pytest.skip("ssh-keygen is not here: apt-get install openssh-client")
    return found


def said(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.process
def test_openssh_reads_every_key(kind, ssh_keygen, tmp_path):
    made = generate(kind, WORKERS)
    for private, public in (("ssh-privatekey", "ssh-publickey"), ("ssh-hostkey", "ssh-hostkey-public")):
        path = tmp_path / private
        path.touch(mode=0o600)
        path.write_bytes(made[private])
        told = said(ssh_keygen, "-y", "-f", str(path)).split()
        assert told[:2] == made[public].decode().split()[:2]
        assert made[public].endswith(b"\n")
    assert made["ssh-privatekey"] != made["ssh-hostkey"]


def test_a_secret_gets_what_its_layout_needs():
    for notes in ({}, {"ringleader/ssh-layout": "reference", "ringleader/ssh-key-type": "ecdsa"}):
        job = read(mpijob(metadata={"annotations": notes}))
        made = generate(ssh_secret.key_type(job), ssh_secret.known_as(job))
        assert set(made) == ssh_secret.keys(job)
    assert made["ssh-publickey"].startswith(b"ecdsa-sha2-nistp256 ")


def test_an_unknown_type():
    with pytest.raises(RequestError, match="dsa2"):
        generate("dsa2", WORKERS)


@pytest.mark.process
def test_known_hosts_hold_the_workers_on_any_port(ssh_keygen, tmp_path):
    made = generate("ed25519", WORKERS)
    path = tmp_path / "known_hosts"
    path.write_bytes(made["ssh-known-hosts"])
    for name, is_known in (
        ("train-worker-0.train.team.svc", True),
        ("train-worker-12.train.team.svc.cluster.local", True),
        ("[train-worker-0.train.team.svc]:2222", True),
        ("train-worker-3", True),
        ("train-launcher.train.team.svc", False),
        ("other-worker-0.other.team.svc", False),
    ):
        done = finished([ssh_keygen, "-F", name, "-f", str(path)], timeout=30)
        assert (done.returncode == 0) == is_known
        assert not is_known or made["ssh-hostkey-public"].decode().split()[1] in done.stdout
