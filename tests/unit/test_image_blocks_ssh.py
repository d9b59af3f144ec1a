"""The block sshd: its configuration, judged by OpenSSH itself."""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringleader.images.blocks.sshd import Sshd, client, server
from ringleader.images.blocks.system import Account

pytestmark = pytest.mark.process

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin:/usr/bin")
needs_sshd = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh-keygen") is None, reason="openssh-server is not installed"
)
needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="openssh-client is not installed")


NOBODY = {"user": 65534, "group": 65534, "extra_groups": ()} if os.geteuid() == 0 else {}
"""As root sshd would want /run/sshd; in the image it is not root either, and the keys belong to another."""


def run(*argv: str, **who: Any) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False, **who)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that another account may read, which those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="ringleader-sshd-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def answers(text: str) -> dict[str, str]:
    return dict(line.partition(" ")[::2] for line in text.splitlines())


@needs_sshd
@pytest.mark.parametrize("account", ("trainer", "root"))
def test_sshd_takes_its_configuration(open_path: Path, account: str) -> None:
    who = Account(name=account)
    keys = open_path / ".ssh"
    keys.mkdir()
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / "id_rsa"))
    for path in (keys, keys / "id_rsa") if NOBODY else ():
        path.chmod(0o755)
    lines = "\n".join(server(Sshd(port=2345), who, "/opt/venv/bin:/usr/bin"))
    config = open_path / "sshd_config"
    config.write_text(lines.replace(f"{who.home}/.ssh", str(keys)) + "\n")
    found = answers(run(str(SSHD), "-T", "-f", str(config), **NOBODY))
    assert found["port"] == "2345"
    assert found["hostkey"] == str(keys / "id_rsa")
    assert found["setenv"] == "PATH=/opt/venv/bin:/usr/bin"
    assert found["passwordauthentication"] == found["kbdinteractiveauthentication"] == "no"
    assert found["permitrootlogin"] in (
        ("without-password", "prohibit-password") if account == "root" else "no"
    )
    assert found["allowusers"] == account
    assert found.get("usepam", "no") == "no"


@needs_ssh
def test_ssh_knows_every_host_of_the_job_by_the_jobs_key(tmp_path: Path) -> None:
    keys = tmp_path / ".ssh"
    keys.mkdir()
    (keys / "id_rsa.pub").write_text("ssh-ed25519 AAAAC3Nza job\n")
    config = tmp_path / "ssh_config"
    lines = "\n".join(client(Sshd(port=2345), Account()))
    config.write_text(lines.replace("/home/trainer/.ssh", str(keys)) + "\n")
    found = answers(run("ssh", "-G", "-F", str(config), "worker-0"))
    assert (found["port"], found["user"], found["batchmode"]) == ("2345", "trainer", "yes")
    assert found["stricthostkeychecking"] != "false"
    if "knownhostscommand" in found:
        assert run(*shlex.split(found["knownhostscommand"])) == "* ssh-ed25519 AAAAC3Nza job\n"
        (keys / "id_rsa.pub").unlink()
        assert run(*shlex.split(found["knownhostscommand"])) == ""
