"""``ringleader render compose``: what is printed, what is written, what is never written over."""

import json
import os
import re
import shlex
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.commands import finished
from tests.unit.conftest import Call

from ringleader.cli.main import main
from ringleader.cli.render import compose as compose_command
from ringleader.errors import RefusedError, RequestError
from ringleader.option_fields import parts
from ringleader.render.compose.application_files import File
from ringleader.render.compose.request import ComposeRequest, User, known_profiles

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/compose.md"
COMPOSE = ("render", "compose", "--image", "team/torch:2.8")
WORDS = (*COMPOSE, "-n", "2")


def test_without_a_directory_the_file_is_printed_and_no_key(call: Call, tmp_path: Path) -> None:
    for more, said in (
        ((), "0600 mpihead/id_ed25519"),
        (("-o", tmp_path / "app", "--dry-run"), f"{tmp_path / 'app'} would hold"),
    ):
        code, out, err = call(*WORDS, *more)
        assert code == 0 and set(yaml.safe_load(out)["services"]) == {"mpihead", "mpinode-1"}
        assert "ssh-ed25519" not in out + err and "PRIVATE" not in out + err
        assert said in err and list(tmp_path.iterdir()) == []


def test_several_hosts_are_several_documents(call: Call) -> None:
    words = (*COMPOSE, "--hosts", "node1:8,node2:8", "--hosts", "node3", "--gpus", "4")
    code, out, _ = call(*words)
    names = [f"node{number}/compose.yaml" for number in (1, 2, 3)]
    assert code == 0
    assert [line.removeprefix("# ") for line in out.splitlines() if line.startswith("#")] == names
    services = [list(one["services"]) for one in yaml.safe_load_all(out)]
    assert services == [["mpihead"], ["mpinode-1"], ["mpinode-2"]]
    assert list(json.loads(call(*words, "--json")[1])) == names


@pytest.mark.process
def test_a_directory_holds_keys_that_fit_each_other(call: Call, tmp_path: Path) -> None:
    directory = tmp_path / "app"
    directory.mkdir()  # an empty one may exist
    code, out, err = call(*WORDS, "-o", directory)
    assert (code, out) == (0, "") and str(directory / "README.md") in err
    assert list(tmp_path.iterdir()) == [directory], "nothing lies beside it"
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
    directory, before = tmp_path / "app", os.umask(0)
    try:
        code, out, _ = call(*COMPOSE, *words, "-o", directory, "--json")
    finally:
        os.umask(before)
    found = {path: f"{stat.S_IMODE(path.stat().st_mode):04o}" for path in [directory, *directory.rglob("*")]}
    assert code == 0 and {mode for path, mode in found.items() if path.is_dir()} == {"0700"}
    files = {str(path.relative_to(directory)): mode for path, mode in found.items() if path.is_file()}
    assert json.loads(out)["files"].items() <= files.items()
    private = {path.rpartition("/")[2] for path, mode in files.items() if mode == "0600"}
    assert private >= {"host_key", "id_ed25519", "sshd_config"}
    assert [path.parent.name for path in found if path.name == "id_ed25519"] == ["mpihead"]


def test_an_application_is_replaced_only_if_asked(call: Call, tmp_path: Path) -> None:
    directory = tmp_path / "app"
    assert call(*COMPOSE, "-n", "3", "-o", directory)[0] == 0
    before = (directory / "mpihead/id_ed25519").read_text()
    code, _, err = call(*WORDS, "-o", directory)
    assert code == 2 and "holds an application already" in err and "--replace" in err
    assert (directory / "mpihead/id_ed25519").read_text() == before
    assert call(*WORDS, "-o", directory, "--replace")[0] == 0
    assert (directory / "mpihead/id_ed25519").read_text() != before
    assert not (directory / "mpinode-2").exists() and list(tmp_path.iterdir()) == [directory]


@pytest.mark.parametrize("replace", [(), ("--replace",)])
def test_files_of_others_are_left_alone(call: Call, tmp_path: Path, replace: tuple[str, ...]) -> None:
    assert call(*WORDS, "-o", tmp_path / "app")[0] == 0
    for mine in (tmp_path / "app/mpihead/train.py", tmp_path / "home/thesis.tex"):
        mine.parent.mkdir(exist_ok=True)
        mine.write_text("mine")
        code, _, err = call(*WORDS, "-o", tmp_path / mine.relative_to(tmp_path).parts[0], *replace)
        assert code == 2 and "holds other files: " in err and mine.name in err and mine.read_text() == "mine"
    assert list((tmp_path / "home").iterdir()) == [mine]


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


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    place = tmp_path / "app"
    wrong = (File(path="a", text="new"), File(path="a/b", text="new"))
    with pytest.raises(RefusedError):
        compose_command.write_directory(place, wrong, User())
    assert list(tmp_path.iterdir()) == []
    compose_command.write_directory(place, (File(path="a", text="old"),), User())
    with pytest.raises(RefusedError):
        compose_command.write_directory(place, wrong, User())
    assert (place / "a").read_text() == "old" and list(tmp_path.iterdir()) == [place]


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
    assert owners.items() >= {"app": 0, "README.md": 0, "mpihead": other, "host_key": other}.items()


@pytest.mark.parametrize("words", [("--image", "a b"), ("--rdma", "dra"), ("-n", "many"), ("-x", "A")])
def test_bad_words_write_nothing(call: Call, tmp_path: Path, words: tuple[str, ...]) -> None:
    code, out, err = call(*WORDS, *words, "-o", tmp_path / "app")
    assert (code, out, list(tmp_path.iterdir())) == (2, "", []) and words[0] in err


def test_the_help_names_the_profiles_that_there_are() -> None:
    (option,) = (one.declared for one in parts(ComposeRequest) if one.name == "rdma")
    assert set(known_profiles()) <= set(re.findall(r"[\w-]+", str(option.help)))


def test_the_commands_of_the_guide_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made, here = [], tmp_path
    blocks = re.findall(r"^```console\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    for words in [shlex.split(line[2:]) for block in blocks for line in block.splitlines()]:
        if words[:3] == ["ringleader", "render", "compose"]:
            here = tmp_path
            with pytest.raises(SystemExit) as ended:
                main(words[1:])
            assert ended.value.code == 0
            made += words[-1:] if "-o" in words else []
        elif words[0] == "cd":
            here = here / words[1]
            assert here.is_dir()
        elif words[0] == "scp":
            assert (here / words[2] / "compose.yaml").is_file()
        else:
            assert words[0] == "docker"
            assert shlex.join(words) in (here / "README.md").read_text() or words[-1] == "down"
    assert made == ["digits", "cluster", "stack"]
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed == yaml.safe_load((tmp_path / "digits/compose.yaml").read_text())
    assert printed["services"]["mpihead"]["working_dir"] == "/digits"
