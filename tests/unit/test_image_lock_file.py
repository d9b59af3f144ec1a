"""Locks: what pip is asked about a recipe, and the file that is made of its answer."""

import hashlib
import os
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.time_limits import patience

from ringleader.cli.image.recipe_options import RecipeOptions, opened
from ringleader.errors import RefusedError, RequestError
from ringleader.images import lock_file
from ringleader.images.mirrors import places_of

SHA = "a" * 64


def item(name, version, sha256=SHA, url="https://me:secret@i.example.org/x.whl"):
    hashes = {"archive_info": {"hashes": {"sha256": sha256}} if sha256 else {}}
    return {"metadata": {"name": name, "version": version}, "download_info": {"url": url, **hashes}}


@pytest.fixture
def asked() -> lock_file.Question:
    return lock_file.question(opened("pytorch-cpu"))


def test_the_question_is_about_the_image_s_python_and_base(asked: lock_file.Question) -> None:
    assert asked.python == "3.11"
    assert asked.platforms[0] == "manylinux_2_36_x86_64"
    assert asked.platforms[-2:] == ("manylinux2014_x86_64", "linux_x86_64")
    assert asked.indexes == ("https://download.pytorch.org/whl/cpu",)
    assert [one.partition("==")[0] for one in asked.placed[asked.indexes[0]]] == ["torch"]
    assert not [one for one in asked.placed[""] if one.startswith("torch")]
    assert any(one.startswith("mpi4py") for one in asked.placed[""])
    assert not [one for one in asked.placed[""] if "ringleader" in one], "our own wheel is no index's"


def test_another_machine() -> None:
    asked = lock_file.question(opened("pytorch-cpu"), platform="linux/arm64")
    assert {one.rpartition("_")[2] for one in asked.platforms} == {"aarch64"} or all(
        one.endswith("aarch64") for one in asked.platforms
    )
    wheels = lock_file.question(opened("pytorch-cpu", RecipeOptions(set=("packages.wheels=wheels",))))
    words = lock_file.argv(wheels, python="py", target="/t", directory="/d")
    assert "--no-index" in words and wheels.indexes == ()
    assert words[words.index("--find-links") + 1] == "/d/wheels", "wheels of the recipe are the only place"
    locked = RecipeOptions(set=("packages.lock=requirements.lock", "packages.pip=pillow>=11"))
    assert "pillow>=11" in lock_file.question(opened("pytorch-cpu", locked)).placed[""]
    with pytest.raises(RequestError, match="linux/amd64 or linux/arm64"):
        lock_file.question(opened("pytorch-cpu"), platform="linux/s390x")


INDEX = "https://download.pytorch.org/whl/cpu"


def test_each_package_has_one_place_where_it_may_come_from(asked: lock_file.Question) -> None:
    words = lock_file.argv(asked, python="py", target="/t", directory="/d", index=INDEX)
    assert words[words.index("--index-url") + 1] == INDEX
    assert [word.partition("==")[0] for word in words[-1:]] == ["torch"]
    words = lock_file.argv(asked, python="py", target="/t", directory="/d", found="/f")
    assert "--index-url" not in words and words[words.index("--find-links") + 1] == "/f/page.html"
    assert not [word for word in words if "extra-index" in word]
    own = item("torch", "2.8.0+cpu", url=f"{INDEX}/torch-2.8.0%2Bcpu-x.whl")
    text = lock_file.text(asked, [own], [item("numpy", "2.0")])
    assert f"torch @ {INDEX}/torch-2.8.0%2Bcpu-x.whl --hash=sha256:{SHA}\n" in text
    assert f"numpy==2.0 --hash=sha256:{SHA}\n" in text and "index-url" not in text
    found = [item("Typing_Extensions", "4.1"), item("click", "8.1.7", "b" * 64)]
    lines = lock_file.text(asked, [], found).splitlines()
    assert lines[0].startswith("# Written by `ringleader image lock` for pytorch-cpu")
    assert lines[1].endswith("Python 3.11, glibc 2.36, x86_64") and "secret" not in "".join(lines)
    hashes = {"click==8.1.7": "b" * 64, "typing-extensions==4.1": SHA}
    assert lines[2:] == [f"{name} --hash=sha256:{sha}" for name, sha in hashes.items()]
    helper = item("helper", "1", url=f"{lock_file.PYPI}helper.whl")
    assert f"\nhelper==1 --hash=sha256:{SHA}\n" in lock_file.text(asked, [helper], []), "only torch may not"
    with pytest.raises(RefusedError) as caught:
        lock_file.text(asked, [], [item("a", "1", ""), item("b", "2"), item("c", "3", "xyz")])
    assert [fault.what.split()[0] for fault in caught.value.faults] == ["a", "c"], "without a hash"
    wrong = item("torch", "2.8.0", url="https://files.pythonhosted.org/packages/torch.whl")
    with pytest.raises(RefusedError, match=r"torch 2\.8\.0 would come from PyPI, not from its index"):
        lock_file.text(asked, [wrong], [])


def test_an_address_of_a_mirror_is_the_usual_one_in_the_file() -> None:
    asked = lock_file.question(opened("pytorch-cpu", RecipeOptions(mirror=("cn",))))
    place = dict(places_of(asked.recipe.mirrors).fetch)["https://download.pytorch.org/whl"]
    words = lock_file.argv(asked, python="py", target="/t", directory="/d", index=INDEX)
    assert words[words.index("--index-url") + 1] == f"{place}/cpu"
    pip = lock_file.argv(asked, python="py", target="/t", directory="/d")
    assert pip[:5] == ("py", "-P", "-m", "pip", "install") and "pypi.org" not in " ".join(pip)
    text = lock_file.text(asked, [item("torch", "2.8.0+cpu", url=f"{place}/cpu/torch.whl")], [])
    assert f"torch @ {INDEX}/torch.whl " in text and place not in text


def ask(asked: lock_file.Question, tmp_path: Path, program: str, seconds: float = 60.0):
    """Ask a program that stands for pip: a module of that name, found first."""
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip/__init__.py").touch()
    (tmp_path / "pip/__main__.py").write_text(program)
    return lock_file.ask(asked, environ={"PYTHONPATH": str(tmp_path)}, directory=tmp_path, seconds=seconds)


@pytest.mark.process
def test_pip_s_own_words_without_credentials(asked: lock_file.Question, tmp_path: Path) -> None:
    program = "import sys; sys.exit('Looking in https://me:secret@i.example.org/simple\\nERROR: no torch==9')"
    with pytest.raises(RefusedError) as caught:
        ask(asked, tmp_path, program)
    assert "ERROR: no torch==9" in str(caught.value)
    assert "https://i.example.org/simple" in str(caught.value)
    assert "secret" not in str(caught.value)
    for program, seconds, said in (
        ("import time; time.sleep(600)", 1.0, "did not end within 1 s"),
        ("print('{')", 60.0, "finds no packages"),
    ):
        (tmp_path / "pip/__main__.py").write_text(program)
        with pytest.raises(RefusedError, match=said):
            environ = {"PYTHONPATH": str(tmp_path)}
            lock_file.ask(asked, environ=environ, directory=tmp_path, seconds=seconds)


def wheel(directory: Path, name: str, version: str, *needs: str) -> None:
    """Make a package in an index: ``simple/NAME/`` with a page and a wheel that has nothing but metadata."""
    place = directory / "simple" / name
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"{name}-{version}-py3-none-any.whl"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {need}" for need in needs]
    files = {
        "METADATA": "\n".join(lines) + "\n",
        "WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(file, "w") as archive:
        for part, text in files.items():
            archive.writestr(f"{name}-{version}.dist-info/{part}", text)
    links = (
        f"{one.name}#sha256={hashlib.sha256(one.read_bytes()).hexdigest()}" for one in place.glob("*.whl")
    )
    (place / "index.html").write_text(
        "".join(f'<a href="{one}">{one.partition("#")[0]}</a>\n' for one in links)
    )


@pytest.mark.process
def test_real_pip_takes_each_package_from_its_own_index(asked: lock_file.Question, tmp_path: Path) -> None:
    """The default index has another PyTorch, and a newer helper than the framework's: neither is taken."""
    for index, *package in (
        ("own", "torch", "2.8.0+cpu", "helper"),
        ("own", "helper", "1.0"),
        ("default", "torch", "2.8.0", "cuda"),
        ("default", "helper", "9.0"),
        ("default", "lightning", "1.0", "torch>=2", "numpy"),
        ("default", "numpy", "2.0"),
    ):
        wheel(tmp_path / index, *package)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_port}"
        placed = {"": ("lightning",), f"{place}/own/simple": ("torch==2.8.0",)}
        environ = {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": f"{place}/default/simple",
            "HOME": str(tmp_path),
        }
        found = lock_file.ask(
            replace(asked, placed=placed), environ=environ, directory=tmp_path, seconds=patience(60)
        )
        text = lock_file.text(asked, *found)
        (tmp_path / "lock").write_text(text)
        argv = [sys.executable, "-m", "pip", "install", "--dry-run", "--target", str(tmp_path / "target")]
        argv += ["--require-hashes", "--no-deps", "--requirement", str(tmp_path / "lock")]
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False)
        server.shutdown()
    assert done.returncode == 0 and "torch-2.8.0+cpu" in done.stdout, done
    lines = text.replace(place, "").splitlines()[2:]
    assert [line.partition(" --hash")[0] for line in lines] == [
        "helper @ /own/simple/helper/helper-1.0-py3-none-any.whl",
        "lightning==1.0",
        "numpy==2.0",
        "torch @ /own/simple/torch/torch-2.8.0%2Bcpu-py3-none-any.whl",
    ]
