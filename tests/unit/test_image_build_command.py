"""What a builder is called with, how steps are isolated, what its output means: tables of cases."""

import json

import pytest

from ringleader.errors import RefusedError, RequestError
from ringleader.images import build
from ringleader.images.build import LAST_LINES, Progress, shortened
from ringleader.images.builders import BuildEnvironment, Builder, BuildOptions, isolation, tag_of


def builder(name: str, *options: str) -> Builder:
    return Builder(name=name, program=f"/usr/bin/{name}", version="1", global_options=options)


def called(name: str, isolated: str = "", **options: object) -> list[str]:
    options = BuildOptions(tag="t:1", **options)
    return list(builder(name).build_words(options, directory="/c", isolation=isolated))


START = ["--file", "/c/Dockerfile", "--tag", "t:1", "--iidfile", "/c/image-id"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (called("buildah"), ["/usr/bin/buildah", "bud", *START, "--layers", "--pull=false", "/c/context"]),
        (called("podman"), ["/usr/bin/podman", "build", *START, "--pull=false", "/c/context"]),
        (called("docker"), ["/usr/bin/docker", "build", *START, "/c/context"]),
        (called("docker", timestamp=0),
         ["/usr/bin/docker", "build", *START, "--build-arg", "SOURCE_DATE_EPOCH=0", "/c/context"]),
        (called("buildah", "chroot", pull="never", platform="linux/arm64", no_cache=True, timestamp=7,
         arguments=("--squash", "x y")),
         [* ("/usr/bin/buildah", "bud", *START, "--layers", "--isolation", "chroot"),
         * ("--platform", "linux/arm64", "--pull=never", "--no-cache", "--timestamp", "7"),
         * ("--squash", "x y", "/c/context")]),
    ],
)  # fmt: skip
def test_command_lines(words: list[str], expected: list[str]) -> None:
    assert words == expected


def test_what_docker_cannot_do_is_said_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        called("docker", isolation="chroot", pull="never")
    assert [fault.where for fault in caught.value.faults] == ["--isolation", "--pull"]


def environment(**changes: object) -> BuildEnvironment:
    usual = {"root": True, "may_raise_limits": True, "in_container": False, "runtime": "/usr/bin/crun"}
    return BuildEnvironment(**{**usual, **changes})


def test_isolation() -> None:
    for asked, name, here, value, reason in (
        ("", "buildah", environment(), "", ""),
        ("", "buildah", environment(runtime=""), "chroot", "no OCI runtime"),
        ("", "buildah", environment(may_raise_limits=False), "chroot", "CAP_SYS_RESOURCE"),
        ("", "buildah", environment(root=False, may_raise_limits=False), "", ""),
        ("", "buildah", environment(in_container=True), "chroot", "container"),
        ("", "buildah", environment(runtime="", chosen="rootless"), "rootless", ""),
        ("", "docker", environment(runtime="", may_raise_limits=False), "", ""),
    ):
        found = isolation(asked, builder(name), here)
        assert found.value == value
        assert reason in found.reason
        assert bool(found.reason) == bool(reason)


BUILDAH = """\
[1/2] STEP 1/2: FROM debian:12 AS build
[1/2] STEP 2/2: RUN make
compiling
[2/2] STEP 1/2: FROM debian:12
[2/2] STEP 2/2: RUN false
bad thing
Error: error building at STEP "RUN false": exit status 1
"""
BUILDKIT = """\
#1 [internal] load build definition from Dockerfile
#4 [build 2/3] RUN make
#5 [stage-1 2/4] RUN apt-get update
#4 0.412 compiling
#5 1.201 bad thing
#4 DONE 3.0s
#5 ERROR: process "/bin/sh -c apt-get update" did not complete successfully: exit code: 1
------
 > [stage-1 2/4] RUN apt-get update:
1.201 bad thing
------
"""


def told(text: str) -> tuple[Progress, list[str]]:
    progress = Progress()
    steps = [step for line in text.splitlines() if (step := progress.feed(line))]
    return progress, steps


def test_buildah_s_steps() -> None:
    progress, steps = told(BUILDAH)
    assert steps == [
        "stage 1/2, step 1 of 2: FROM debian:12 AS build",
        "stage 1/2, step 2 of 2: RUN make",
        "stage 2/2, step 1 of 2: FROM debian:12",
        "stage 2/2, step 2 of 2: RUN false",
    ]
    assert progress.at == steps[-1]
    assert progress.last_lines == ("bad thing", 'Error: error building at STEP "RUN false": exit status 1')


def test_buildkit_s_steps_run_side_by_side() -> None:
    progress, steps = told(BUILDKIT)
    assert steps == ["stage build, step 2 of 3: RUN make", "stage stage-1, step 2 of 4: RUN apt-get update"]
    assert progress.at == steps[1]
    assert progress.last_lines[0] == "bad thing"
    assert "compiling" not in progress.last_lines


def test_words_of_steps_tags_and_storage() -> None:
    progress, steps = told("STEP 1/1: RUN x\n#9 hello\n[9/9] words\n" + "line\n" * 100 + "last\n")
    assert steps == ["step 1 of 1: RUN x"] == [progress.at], "a step may print what another tool would"
    assert len(progress.last_lines) == LAST_LINES and progress.last_lines[-1] == "last"
    progress, steps = told("Step 1/2 : FROM debian:12\n ---> 1234\nStep 2/2 : RUN false\nbad thing\n")
    assert steps == ["step 1 of 2: FROM debian:12", "step 2 of 2: RUN false"], "the classical docker"
    assert progress.last_lines == ("bad thing",)
    assert (shortened("a  b\n c", 10), shortened("x" * 20, 10)) == ("a b c", "x" * 9 + "…")
    tags = {"": "digits:latest", "a:2": "a:2", "r.example.org:5000/a": "r.example.org:5000/a:latest"}
    assert {tag: tag_of(tag, "digits") for tag in tags} == tags
    options = BuildOptions(tag="t:1")
    words = builder("buildah", "--storage-driver", "vfs").build_words(options, directory="/c", isolation="")
    assert words[:4] == ("/usr/bin/buildah", "--storage-driver", "vfs", "bud")


MANIFEST = json.dumps({"layers": [{"size": 2048}, {"size": 10}]})


@pytest.mark.parametrize(
    ("name", "answer", "expected"),
    [
        ("buildah", {"FromImageID": "ab", "FromImageDigest": "sha256:cd", "Manifest": MANIFEST},
         ("sha256:ab", "sha256:cd", 2058)),
        ("podman", [{"Id": "ab", "Digest": "sha256:cd", "Size": 5}], ("sha256:ab", "sha256:cd", 5)),
        ("docker", [{"Id": "sha256:ab", "RepoDigests": ["r.example.org/a@sha256:cd"], "Size": 5}],
         ("sha256:ab", "sha256:cd", 5)),
    ],
)  # fmt: skip
def test_results(name: str, answer: object, expected: tuple[str, str, int]) -> None:
    found = build.stored(name, json.dumps(answer), "x")
    assert (found.id, found.digest, found.size) == expected


@pytest.mark.parametrize("text", ["", "[]", "{}", "[{}]", "null"])
@pytest.mark.parametrize("name", ["buildah", "docker"])
def test_an_answer_that_is_none(name: str, text: str) -> None:
    with pytest.raises(RefusedError, match="cannot be read"):
        build.stored(name, text, "x")
