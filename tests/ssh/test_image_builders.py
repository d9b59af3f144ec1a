"""Which builder is used, and a real buildah, without any registry: what it is asked, how it fails."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from tests.commands import finished
from tests.time_limits import patience

from ringleader.cli.image.render import pinned
from ringleader.errors import RefusedError
from ringleader.images import builders
from ringleader.images.build import Built, Task, build, contents
from ringleader.images.builders import BuildOptions, Isolation
from ringleader.images.instructions import Image

ANSWERS = """#!/bin/sh
case "$*" in
  *--version*) echo "$(basename $0) version 1.2" ;;
  *) echo overlay ;;
esac
"""
NO_DAEMON = "#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n"
OLD_CLIENT = "#!/bin/sh\necho 'WARNING: no daemon' >&2\necho\n"
HANGS = "#!/bin/sh\nsleep 600 &\necho $! > {mark}\nwait\n"


@pytest.fixture
def path(tmp_path: Path):
    """Put programs on their own PATH; what a test's shell needs is behind them."""
    place = tmp_path / "bin"
    place.mkdir()
    for tool in ("sleep", "basename"):
        (place / tool).symlink_to(f"/usr/bin/{tool}")

    def make(**programs: str) -> dict[str, str]:
        for name, text in programs.items():
            (place / name).write_text(text.replace("{mark}", str(tmp_path / "mark")))
            (place / name).chmod(0o755)
        return {"PATH": str(place)}

    return make


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        ({"buildah": ANSWERS, "docker": ANSWERS}, "buildah"),
        ({"buildah": NO_DAEMON, "docker": ANSWERS}, "docker"),
        ({"docker": NO_DAEMON, "podman": ANSWERS}, "podman"),
    ],
)
def test_the_next_one_where_one_is_missing_or_fails(path, programs: dict[str, str], expected: str) -> None:
    found = builders.find(environ=path(**programs))
    assert (found.name, found.version) == (expected, f"{expected} version 1.2")


def test_the_wanted_one_and_no_other(path) -> None:
    environ = path(buildah=ANSWERS, docker=NO_DAEMON)
    assert builders.find("buildah", environ=environ).name == "buildah"
    with pytest.raises(RefusedError) as caught:
        builders.find("docker", environ=environ)
    assert [fault.where for fault in caught.value.faults] == ["docker"]


@pytest.mark.parametrize("client", [NO_DAEMON, OLD_CLIENT])
def test_each_one_s_reason(path, client: str) -> None:
    with pytest.raises(RefusedError) as caught:
        builders.find(environ=path(docker=client, buildah="no program"))
    assert caught.value.exit_code == 3
    assert [fault.where for fault in caught.value.faults] == ["buildah", "podman", "docker"]
    text = str(caught.value)
    assert "podman: is not installed (looked for it on PATH)" in text
    assert "docker does not work here" in text
    assert "is its daemon running?" in text
    assert "buildah does not work here" in text


def test_one_that_hangs_is_ended_with_its_children(path, tmp_path: Path) -> None:
    environ = path(docker=HANGS)
    for seconds in (1.0, 4.0, 16.0, 64.0):  # a busy machine may not have begun it after the first
        with pytest.raises(RefusedError, match=f"did not answer within {seconds:g} s"):
            builders.find("docker", environ=environ, seconds=seconds)
        if (tmp_path / "mark").exists():
            break
    child = int((tmp_path / "mark").read_text())
    end = time.monotonic() + patience(30)
    while os.path.exists(f"/proc/{child}") and time.monotonic() < end:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{child}")


def test_a_storage_driver_is_the_builder_s_own_business(path, tmp_path: Path) -> None:
    script = f'#!/bin/sh\necho "$@" >> {tmp_path}/words\necho vfs\n'
    environ = path(buildah=script, docker=ANSWERS)
    found = builders.find(environ=environ, storage_driver="vfs")
    assert found.global_options == ("--storage-driver", "vfs")
    assert (tmp_path / "words").read_text().startswith("--storage-driver vfs info ")
    with pytest.raises(RefusedError, match="daemon decides"):
        builders.find("docker", environ=environ, storage_driver="vfs")


# --- a real buildah ---------------------------------------------------------------------------------------

DOCKERFILE = """\
FROM scratch AS build
COPY words /words
FROM scratch
COPY --from=build /words /words
LABEL a=b
"""


class Silent:
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
