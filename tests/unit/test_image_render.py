"""``ringleader image render`` and ``image list``: exit codes, streams, and what is written where."""

import json
from pathlib import Path

import pytest
from tests.unit.conftest import Call
from tests.unit.image_world import ROOT
from tests.unit.test_start_cost import HEAVY, loaded

from ringleader.cli.image.recipe_options import profiles
from ringleader.images.bundled_recipes import historical
from ringleader.images.dockerfile import ignore_text
from ringleader.images.instructions import Image

GOLDEN = ROOT / "tests/golden/images"
RECIPE = """name = "mine"
base = "debian:12"
[torch]
version = "2.8.0"
variant = "cpu"
[files.copy]
"src/train.py" = "/opt/train/train.py"
"data" = "/opt/data/"
[ringleader]
wheel = "r.whl"
"""


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    directory = tmp_path / "recipes"
    (directory / "src").mkdir(parents=True)
    (directory / "src/train.py").write_text("print('hello')\n")
    (directory / "data/empty").mkdir(parents=True)
    (directory / "data/a").write_text("a")
    (directory / "r.whl").write_text("")
    (directory / "mine.toml").write_text(RECIPE)
    return directory


def test_a_file_and_changes(call: Call, mine: Path) -> None:
    code, out, _ = call(
        "image", "render", str(mine / "mine.toml"), "--set", "torch.version=2.9.1", "--mirror", "cn"
    )
    assert code == 0
    assert "torch==2.9.1" in out
    assert "FROM docker.m.daocloud.io/library/debian:12\n" in out
    assert "COPY --chown=1000:1000 src/train.py /opt/train/train.py" in out
    code, out, _ = call("image", "render", str(mine / "mine.toml"), "--base", "ubuntu:24.04", "--json")
    found = json.loads(out)
    assert code == 0 and (found["name"], found["format"]) == ("mine", "dockerfile")
    assert "FROM ubuntu:24.04\n" in found["text"] and {"src/train.py", "data"} <= set(found["context"])
    code, out, _ = call("image", "render", "pytorch-cpu", "--format", "apptainer")
    assert (code, out) == (0, (GOLDEN / "pytorch-cpu.def").read_text())


def test_what_is_doubtful_is_said_and_what_is_historical_is_rendered(call: Call) -> None:
    code, out, err = call("image", "render", "all-frameworks-2019")
    assert (code, out) == (0, historical("all-frameworks-2019").image.kept[0])
    assert "all-frameworks-2019: gone: " in err


def test_what_cannot_work_is_refused(call: Call, mine: Path) -> None:
    argv = ("render", str(mine / "mine.toml"), "--set", "torch.version=2.8.99")
    code, out, err = call("image", *argv, "-o", str(mine / "out"))
    assert (code, out) == (2, "")
    assert "2.8.99" in err
    assert not (mine / "out").exists()
    code, out, err = call("image", *argv, "--no-check")
    assert (code, "torch==2.8.99" in out, err) == (0, True, "")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("pytorch-cpo",), "pytorch-cpo: is neither a profile nor a file (No such file or directory)\n"
         "    → did you mean pytorch-cpu? ringleader image list shows the profiles\n"),
        (("no/such.toml",), "no/such.toml: cannot be read: No such file or directory\n"),
        (("pytorch-cpu", "--set", "torch.versoin=1"), "--set torch.versoin: unknown key\n"),
        (("pytorch-cpu", "--mirror", "pip=x"), "--mirror pip: 'x' is not an http or https URL\n"),
        (("pytorch-cpu", "--base", "alpine:3"), "--base: alpine:3 has no apt\n"),
        (("pytorch-cpu", "--base", "debian:12\nRUN id"), r"--base: 'debian:12\nRUN id' is not a "),
        (("pytorch-cpu", "--mirror", ""), "--mirror: nothing is named\n"),
        (("pytorch-cpu", "-o", ""), "-o: nothing is named\n"),
    ],
)  # fmt: skip
def test_one_message_each(call: Call, argv: tuple[str, ...], said: str) -> None:
    code, out, err = call("image", "render", *argv)
    assert (code, out) == (2, "")
    assert err.startswith(f"ringleader: {said}")
    assert err.count("ringleader: ") == 1


def test_a_file_that_is_no_text(call: Call, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b'name = "x"\nabout = "\xff"\n')
    assert call("image", "render", "x.toml") == (2, "", "ringleader: x.toml:2: is not UTF-8\n")
    (tmp_path / "d").mkdir()
    assert call("image", "render", "./d") == (2, "", "ringleader: ./d: cannot be read: Is a directory\n")


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_a_directory_with_all_that_a_builder_needs(call: Call, mine: Path) -> None:
    code, out, err = call(
        "image", "render", str(mine / "mine.toml"), "--set", "ringleader.wheel=", "-o", "out"
    )
    assert (code, out) == (0, "")
    (wheel,) = (name for name in files(Path("out")) if name.endswith(".whl"))
    assert files(Path("out")) == {"Dockerfile", "image.def", ".dockerignore", "src/train.py", "data/a", wheel}
    assert wheel in err
    assert f"COPY {wheel} " in Path("out/Dockerfile").read_text()
    assert Path("out/src/train.py").read_text() == "print('hello')\n"
    assert Path("out/data/empty").is_dir()
    assert [path.name for path in Path().iterdir() if path.name.startswith(".ringleader")] == []


def test_beside_the_recipe(call: Call, mine: Path) -> None:
    before = (mine / "src/train.py").stat().st_ino
    assert call("image", "render", str(mine / "mine.toml"), "-o", str(mine))[0] == 0
    assert (mine / "src/train.py").stat().st_ino == before
    assert (mine / "Dockerfile").is_file()
    assert call("image", "render", str(mine / "mine.toml"), "-o", str(mine))[0] == 0, "a second time"


@pytest.mark.parametrize("name", ["Dockerfile", ".dockerignore", "src/train.py", "src"])
def test_what_is_not_ours_is_not_written_over(call: Call, mine: Path, name: str) -> None:
    there = Path("out") / name
    there.parent.mkdir(parents=True)
    there.write_text("FROM scratch\n")
    code, out, err = call("image", "render", str(mine / "mine.toml"), "-o", "out")
    assert (code, out) == (2, "")
    assert err.startswith(f"ringleader: -o: out/{name} is there already, and not ours\n")
    assert files(Path("out")) == {name}


def test_a_file_that_is_missing_and_a_place_that_cannot_be(call: Call, mine: Path) -> None:
    (mine / "src/train.py").unlink()
    code, _, err = call("image", "render", str(mine / "mine.toml"), "-o", "out")
    assert (code, f"there is no {mine}/src/train.py" in err, Path("out").exists()) == (2, True, False)
    (mine / "src/train.py").write_text("")
    code, _, err = call("image", "render", str(mine / "mine.toml"), "-o", "no/such/out")
    assert (code, "there is no directory" in err) == (2, True)
    Path("file").write_text("")
    code, _, err = call("image", "render", str(mine / "mine.toml"), "-o", "file")
    assert (code, "file is not a directory" in err) == (2, True)
    code, out, err = call("image", "render", str(mine / "mine.toml"), "-o", "/proc/none")
    assert (code, out, "cannot be written" in err) == (3, "", True)


def test_only_what_is_copied_is_sent() -> None:
    image = Image(name="x", about="", stages=(), context=("a.whl", "src/lib/x.py", "src/lib/y", "data/"))
    assert ignore_text(image).splitlines()[1:] == [
        "*",
        "!a.whl",
        "!src",
        "src/*",
        "!src/lib",
        "src/lib/*",
        "!src/lib/x.py",
        "!src/lib/y",
        "!data",
    ]


def test_list(call: Call) -> None:
    code, out, err = call("image", "list")
    assert (code, err) == (0, "")
    header, *rows = out.splitlines()
    assert header.split() == ["PROFILE", "BASE", "FRAMEWORKS", "CUDA", "ABOUT"]
    assert [row.split()[0] for row in rows] == list(profiles())
    code, out, _ = call("image", "list", "--json")
    found = {one["name"]: one for one in json.loads(out)}
    assert set(found) == set(profiles())
    assert found["horovod-0.11"]["frameworks"] == ["TensorFlow 1.6.0", "Horovod 0.11.2"]
    assert (found["horovod-0.11"]["cuda"], found["horovod-0.11"]["historical"]) == ("9.0", True)


@pytest.mark.parametrize("words", ["'image', 'render', 'pytorch-cpu'", "'image', 'list'"])
@pytest.mark.process
def test_rendering_loads_nothing_heavy(words: str) -> None:
    found = loaded(f"from ringleader.cli.main import main; main([{words}])")
    assert found.isdisjoint({*HEAVY, "yaml", "aiohttp", "asyncio", "ssl"} - {"tabulate"})
