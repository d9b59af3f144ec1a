import shutil

import pytest
from tests.commands import finished

from ringleader.plan.job import Host, Ssh
from ringleader.render.hostfile import quoted, ssh_config_text

pytestmark = pytest.mark.process

H1 = Host(name="h1")


def text(ssh=None, hosts=(H1,), user=None):
    return ssh_config_text(
        ssh=ssh if ssh is not None else Ssh(),
        hosts=hosts,
        control_dir="/tmp/r.1",
        user_config=user,
        system_config=None,
    )


def settings(config, host, tmp_path):
    """What OpenSSH itself makes of a configuration; it contacts nobody."""
    ssh = shutil.which("ssh")
    assert ssh is not None, "this test needs the OpenSSH client"
    path = tmp_path / "config"
    path.write_text(config)
    path.chmod(0o600)
    done = finished([ssh, "-F", str(path), "-G", host], timeout=20, check=True)
    found = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value)
    return found


def test_defaults(tmp_path):
    found = settings(text(), "h1", tmp_path)
    assert found["batchmode"] == ["yes"]
    assert found["stricthostkeychecking"] == ["true"]
    assert found["connecttimeout"] == ["10"]
    assert found["controlmaster"] == ["auto"]
    assert found["controlpath"][0] == "/tmp/r.1/0"
    assert found["controlpersist"] == ["60"]
    assert found["port"] == ["22"]


def test_what_was_asked_for_wins_over_the_users_file(tmp_path):
    user = tmp_path / "user's config"
    user.write_text("Host h1\n  Port 99\n  User carol\n  StrictHostKeyChecking no\n  ProxyJump gate\n")
    ssh = Ssh(port=33, accept_new=True, connect_timeout=2.4, identity="/keys/my key %h")
    found = settings(text(ssh, user=str(user)), "h1", tmp_path)
    assert found["port"] == ["33"]
    assert found["stricthostkeychecking"] == ["accept-new"]
    assert found["connecttimeout"] == ["2"]
    assert found["user"] == ["carol"]
    assert found["proxyjump"] == ["gate"]
    assert found["identitiesonly"] == ["yes"]


def test_an_alias_leads_to_the_address(tmp_path):
    config = text(hosts=(Host(name="fe80::1%eth0"), Host(name="bob@fe80::2"), H1))
    found = settings(config, "alias-fe80x3axx3ax1x25xeth0.invalid", tmp_path)
    assert found["hostname"] == ["fe80::1%eth0"]
    found = settings(config, "alias-fe80x3axx3ax2.invalid", tmp_path)
    assert (found["hostname"], found["user"]) == (["fe80::2"], ["bob"])
    assert settings(config, "h1", tmp_path)["user"] != ["bob"]


def test_paths_reach_ssh_as_they_are(tmp_path):
    for name in ("a b", 'quo"te', "back\\slash", "ha#sh", "star*", "brack[et]", "it's", "a=b"):
        directory = tmp_path / name
        directory.mkdir()
        user = directory / "config"
        user.write_text("Host h*\n  Port 77\nHost other\n  Port 98\n")
        identity = str(directory / "key")
        config = text(Ssh(identity=identity), user=str(user))
        found = settings(config, "h1", tmp_path)
        assert (found["port"], found["identityfile"]) == (["77"], [identity])
    assert settings(config, "other", tmp_path)["port"] == ["98"]
    for value in ("a\nProxyCommand evil", "a\rb", "a\0b"):
        with pytest.raises(ValueError, match="cannot hold"):
            quoted(value)
        with pytest.raises(ValueError, match="cannot hold"):
            text(Ssh(identity=value))


def test_an_alias_of_the_users_own_still_leads_where_they_said(tmp_path):
    user = tmp_path / "config of mine"
    user.write_text("Host gpu_1\n  HostName 10.9.8.7\nHost h1\n  HostName 10.9.8.6\n")
    config = text(hosts=(Host(name="gpu_1"), Host(name="bob@h1")), user=str(user))
    assert settings(config, "gpu_1", tmp_path)["hostname"] == ["10.9.8.7"]
    assert settings(config, "h1", tmp_path)["hostname"] == ["10.9.8.6"]
    assert settings(config, "alias-gpux5fx1.invalid", tmp_path)["hostname"] == ["gpu_1"]
