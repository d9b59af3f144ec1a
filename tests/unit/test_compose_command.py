"""``ringleader render compose``: what is printed, what is written, what is never written over."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.commands import finished
from tests.unit.conftest import Call

from ringleader.cli.render import compose as compose_command
from ringleader.errors import RefusedError, RequestError
from ringleader.option_fields import parts
from ringleader.render.compose.application_files import File
from ringleader.render.compose.request import ComposeRequest, User, known_profiles

COMPOSE = ("render", "compose")
WORDS = (*COMPOSE, "--image", "team/torch:2.8", "-n", "2")


def test_without_a_directory_the_file_is_printed_and_no_key(call: Call) -> None:
    code, out, err = call(*WORDS)
    assert code == 0
    assert set(yaml.safe_load(out)["services"]) == {"mpihead", "mpinode-1"}
    assert "ssh-ed25519" not in out + err and "PRIVATE" not in out + err
    assert "0600 mpihead/id_ed25519" in err and "0644 mpinode-1/start" in err


def test_several_hosts_are_several_documents(call: Call) -> None:
    code, out, _ = call(
        *COMPOSE, "--image", "x", "--hosts", "node1:8,node2:8", "--hosts", "node3", "--gpus", "4"
    )
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("#")] == [
        "# node1/compose.yaml",
        "# node2/compose.yaml",
        "# node3/compose.yaml",
    ]
    assert [list(one["services"]) for one in yaml.safe_load_all(out)] == [
        ["mpihead"],
        ["mpinode-1"],
        ["mpinode-2"],
    ]
    _, out, _ = call(*COMPOSE, "--image", "x", "--hosts", "node1:8,node2:8", "--json")
    assert set(json.loads(out)) == {"node1/compose.yaml", "node2/compose.yaml"}


@pytest.mark.process
def test_a_directory_holds_keys_that_fit_each_other(call: Call, tmp_path: Path) -> None:
    directory = tmp_path / "app"
    code, out, err = call(*WORDS, "-o", directory)
    assert (code, out) == (0, "") and str(directory / "README.md") in err
    assert not [path for path in tmp_path.iterdir() if path != directory], "nothing lies beside it"
    login = public_half(directory / "mpihead/id_ed25519")
    for service in ("mpihead", "mpinode-1"):
        assert login in (directory / service / "authorized_keys").read_text()
    known = (directory / "mpihead/known_hosts").read_text().splitlines()
    hosts = [public_half(directory / service / "host_key") for service in ("mpihead", "mpinode-1")]
    assert known == [f"[127.0.0.1]:33 {hosts[0]}", f"[127.0.0.1]:34 {hosts[1]}"]
    assert len({login, *hosts}) == 3


def public_half(key: Path) -> str:
    """What ssh-keygen makes of a private key; it refuses one that others may read."""
    done = finished(["ssh-keygen", "-y", "-f", key], timeout=60, check=True)
    return " ".join(done.stdout.split()[:2])


@pytest.mark.parametrize("words", [("-n", "2"), ("--hosts", "h1:1,h2:1"), ("-n", "2", "--on", "swarm")])
def test_only_one_user_can_read_it(call: Call, tmp_path: Path, words: tuple[str, ...]) -> None:
    directory = tmp_path / "app"
    before = os.umask(0)
    try:
        assert call(*COMPOSE, "--image", "x", *words, "-o", directory)[0] == 0
    finally:
        os.umask(before)
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in [directory, *directory.rglob("*")]}
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o700}
    private = {path.name for path, mode in found.items() if mode == 0o600}
    assert private >= {"host_key", "id_ed25519", "sshd_config"}
    assert [path.parent.name for path in found if path.name == "id_ed25519"] == ["mpihead"]


@pytest.mark.parametrize(
    ("word", "what"), [("x", "'x' is not an integer"), ("0", "0 is not between 1 and 86400")]
)
def test_each_fault_of_a_waiting_time_is_told_once(call: Call, word: str, what: str) -> None:
    code, out, err = call(*WORDS, "--wait", word)
    assert (code, out) == (2, "")
    assert err.count("--wait") == 1 and what in err


def test_an_application_is_replaced_only_if_asked(call: Call, tmp_path: Path) -> None:
    directory = tmp_path / "app"
    assert call(*COMPOSE, "--image", "x", "-n", "3", "-o", directory)[0] == 0
    before = (directory / "mpihead/id_ed25519").read_text()
    code, _, err = call(*WORDS, "-o", directory)
    assert code == 2 and "holds an application already" in err and "--replace" in err
    assert (directory / "mpihead/id_ed25519").read_text() == before
    assert call(*WORDS, "-o", directory, "--replace")[0] == 0
    assert (directory / "mpihead/id_ed25519").read_text() != before
    assert not (directory / "mpinode-2").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["app"]


@pytest.mark.parametrize("replace", [(), ("--replace",)])
def test_files_of_others_are_left_alone(call: Call, tmp_path: Path, replace: tuple[str, ...]) -> None:
    directory = tmp_path / "app"
    assert call(*WORDS, "-o", directory)[0] == 0
    (directory / "mpihead" / "train.py").write_text("mine")
    code, _, err = call(*WORDS, "-o", directory, *replace)
    assert code == 2 and "holds other files: mpihead/train.py" in err
    other = tmp_path / "home"
    other.mkdir()
    (other / "thesis.tex").write_text("mine")
    code, _, err = call(*WORDS, "-o", other, *replace)
    assert code == 2 and "thesis.tex" in err
    assert [path.name for path in other.iterdir()] == ["thesis.tex"]


def test_an_empty_directory_may_be_there(call: Call, tmp_path: Path) -> None:
    assert call(*WORDS, "-o", tmp_path)[0] == 0
    assert (tmp_path / "compose.yaml").is_file()


@pytest.mark.parametrize("words", [("--image", "a b"), ("--rdma", "dra"), ("-n", "many"), ("-x", "A")])
def test_bad_words_write_nothing(call: Call, tmp_path: Path, words: tuple[str, ...]) -> None:
    directory = tmp_path / "app"
    code, out, err = call(*WORDS, *words, "-o", directory)
    assert (code, out) == (2, "") and words[0] in err
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_writes_nothing(call: Call, tmp_path: Path) -> None:
    code, out, err = call(*WORDS, "-o", tmp_path / "app", "--dry-run")
    assert code == 0 and "mpinode-1" in out and f"{tmp_path / 'app'} would hold" in err
    assert list(tmp_path.iterdir()) == []


def test_json_says_what_was_written(call: Call, tmp_path: Path) -> None:
    code, out, _ = call(*WORDS, "-o", tmp_path / "app", "--json")
    found = json.loads(out)
    assert code == 0 and found["files"]["mpihead/id_ed25519"] == "0600"
    assert all((tmp_path / "app" / path).is_file() for path in found["files"])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.write_text(""), "is not a directory"),
        (lambda path: path.symlink_to(path.parent), "is not a directory"),
        (lambda path: None, "there is no directory"),
    ],
)
def test_a_place_that_is_none(call: Call, tmp_path: Path, make: Any, said: str) -> None:
    place = tmp_path / "app"
    make(place)
    code, _, err = call(*WORDS, "-o", place if os.path.lexists(place) else tmp_path / "none" / "app")
    assert code == 2 and said in err


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "app"
    twice = (File(path="a/b", text="1"), File(path="a/b", text="2"))
    with pytest.raises(RefusedError):
        compose_command.write_directory(place, twice, User())
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_replaced_stays(tmp_path: Path) -> None:
    place = tmp_path / "app"
    compose_command.write_directory(place, (File(path="a", text="old"),), User())
    with pytest.raises(RefusedError):
        compose_command.write_directory(
            place, (File(path="a", text="new"), File(path="a/b", text="new")), User()
        )
    assert (place / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["app"]


def test_keys_go_to_the_containers_user(tmp_path: Path) -> None:
    other = os.geteuid() + 1
    user, place = User(uid=other, gid=other), tmp_path / "app"
    if os.geteuid() != 0:
        with pytest.raises(RequestError, match="cannot be read by user"):
            compose_command.check_owner(user)
        return
    compose_command.check_owner(user)
    one = File(path="mpihead/host_key", text="key", mode=0o600, container="mpihead")
    compose_command.write_directory(place, (one, File(path="README.md", text="")), user)
    owners = {path.name: path.stat().st_uid for path in [place, *place.rglob("*")]}
    assert owners["mpihead"] == owners["host_key"] == other
    assert owners["app"] == owners["README.md"] == 0


def test_every_fault_of_every_word_at_once(call: Call) -> None:
    code, out, err = call(
        *COMPOSE,
        *("--image", "x", "-n", "some", "--hosts", "a:0,,b c,h#", "--gpus", "all", "--ssh-port", "ssh"),
        *("--mount", "data:/data", "--mount", "/a:/etc/ringleader/x", "--mount", "/a:/b:rx", "--user", "me"),
        *("-x", "1=2", "--on", "moon", "--network-mode", "wifi", "--mount", "/x:/", "--mount", "/x:/a/../b"),
    )
    assert (code, out) == (2, "")
    for said in (
        "-n: 'some' is not an integer",
        "--hosts a:0: 0 slots",
        "--hosts entry 2: is not a host",
        "--hosts b c: is not a host",
        "--hosts h#: is not a host",
        "--gpus: 'all'",
        "--ssh-port: 'ssh'",
        "--mount data:/data: the source is not an absolute path",
        "--mount /a:/etc/ringleader/x: the target hides",
        "--mount /a:/b:rx: is not a mount",
        "--mount /x:/: nothing can be mounted",
        "--mount /x:/a/../b: the target holds ..",
        "--user: 'me' is not a user",
        "-x 1: '1' is not a name",
        "--on: 'moon' is unknown",
        "--network-mode: 'wifi' is unknown",
    ):
        assert err.count(said) == 1, said


def test_the_help_names_the_profiles_that_there_are() -> None:
    (option,) = (one.declared for one in parts(ComposeRequest) if one.name == "rdma")
    words = str(option.help).replace(",", " ").replace(".", " ").split()
    assert set(known_profiles()) <= set(words)
