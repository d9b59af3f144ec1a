"""A real buildah, without any registry: what it is asked, what it answers, how its failures look."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.commands import finished

from ringleader.cli.image.render import pinned
from ringleader.errors import RefusedError
from ringleader.images import builders
from ringleader.images.build import Built, Task, build, contents
from ringleader.images.builders import BuildOptions, Isolation
from ringleader.images.instructions import Image

DOCKERFILE = """\
FROM scratch AS build
COPY words /words
FROM scratch
COPY --from=build /words /words
LABEL a=b
"""


class Silent:
    """A watcher that remembers steps."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, step: str, seconds: float) -> None:
        self.steps.append(step)

    def passing(self, seconds: float) -> None:
        pass

    def say(self, text: str) -> None:
        pass


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A storage of its own for buildah: nothing of this machine's images is touched."""
    if shutil.which("buildah") is None:
        pytest.skip("buildah is not installed: apt-get install buildah")
    file = tmp_path / "storage.conf"
    file.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/g"\nrunroot = "{tmp_path}/r"\n')
    found = {**os.environ, "CONTAINERS_STORAGE_CONF": str(file)}
    done = subprocess.run(["buildah", "info"], env=found, capture_output=True, text=True, timeout=60)
    if done.returncode:
        pytest.skip(f"buildah does not work here: {done.stderr.strip()[-200:]}")
    return found


def made(
    tmp_path: Path, environ: dict[str, str], dockerfile: str, **options: object
) -> tuple[Built, list[str]]:
    (tmp_path / "words").write_text("hello\n")
    image = Image(name="digits", about="", stages=(), context=("words",))
    task = Task(
        image=image,
        dockerfile=dockerfile,
        inside=contents(image, str(tmp_path / "digits.toml")),
        options=BuildOptions(tag="localhost/digits:1", pull="never", **options),
        builder=builders.find("buildah", environ=environ),
        isolation=Isolation(value="chroot"),
        seconds=120.0,
    )
    silent = Silent()
    return build(task, environ=environ, watcher=silent), silent.steps


def test_an_image_is_built_and_described(tmp_path: Path, environ: dict[str, str]) -> None:
    found, steps = made(tmp_path, environ, DOCKERFILE)
    assert steps[0] == "stage 1/2, step 1 of 2: FROM scratch AS build"
    assert steps[-1].startswith("stage 2/2, step 3 of 3: LABEL ")
    assert found.stored.id.startswith("sha256:")
    assert found.stored.digest.startswith("sha256:")
    assert found.stored.size > 0
    listed = finished(
        ["buildah", "images", "--noheading", "--format", "{{.Name}}:{{.Tag}}"],
        env=environ,
        timeout=60,
        check=True,
    )
    assert "localhost/digits:1" in listed.stdout.split()
    name = found.stored.id.removeprefix("sha256:")
    child, _ = made(tmp_path, environ, f"FROM {name}\nCOPY words /more\n")
    assert found.bases == {} and child.bases == {name: found.stored.digest}
    again, _ = made(tmp_path, environ, "FROM localhost/digits:1\nCOPY words /more\n")
    assert again.bases == {"localhost/digits:1": ""}, "the name is that of the new image by now"
    with pytest.raises(RefusedError, match="cannot pull it"):
        pinned("localhost:1/nothing:1", environ)


def test_with_a_timestamp_the_same_recipe_gives_the_same_image(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    first, _ = made(tmp_path, environ, DOCKERFILE, timestamp=0, no_cache=True)
    os.utime(tmp_path / "words", (1, 1))
    second, _ = made(tmp_path, environ, DOCKERFILE, timestamp=0, no_cache=True)
    assert first.stored == second.stored
