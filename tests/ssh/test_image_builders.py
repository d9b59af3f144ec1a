"""Which builder is used: the first that answers, each asked with a deadline; else every one's reason."""

import os
import time
from pathlib import Path

import pytest
from tests.time_limits import patience

from ringleader.errors import RefusedError
from ringleader.images import builders

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
