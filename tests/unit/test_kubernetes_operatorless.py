"""A job without an operator: its objects, whose they are, and what cannot be had that way."""

import asyncio
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from ringleader.errors import RefusedError, RequestError
from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.jobs.job_request import JobRequest
from ringleader.kubernetes.jobs.job_state import pods_job_view
from ringleader.kubernetes.jobs.job_submission import OperatorlessSubmission
from ringleader.kubernetes.jobs.mpijob_builder import mpijob
from ringleader.kubernetes.jobs.operatorless_objects import (
    MANAGER,
    OperatorlessPlan,
    check_operatorless,
    owned,
    plan,
)
from ringleader.kubernetes.mpijob.yaml_text import text_of
from ringleader.kubernetes.objects.operator_settings import OperatorSettings


def request(**words: Any) -> JobRequest:
    given = {"name": "train", "namespace": "team", "command": ("python", "t.py"), "image": "x", "np": 2}
    return JobRequest(**(given | words))


def planned(image: str = "", **words: Any) -> OperatorlessPlan:
    return plan(mpijob(request(**words)), OperatorSettings(image=image, has_exec_spawn=True), run="RUN")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pods", {}),
        ("pods-image", {"image": "example.org/ringleader:1", "spawn": "exec"}),
    ],
)
def test_golden(golden: Callable[[str, str], None], name: str, words: dict[str, Any]) -> None:
    first, *rest = planned(**words).documents
    documents = [first, *(owned(one, name="train-launcher", uid="UID") for one in rest)]
    golden(f"../kubernetes_client/{name}.yaml", text_of(documents))
    for document in documents:
        kubernetes_validate.validate(document, "1.33", strict=True)


EXISTS = ApiError(status=409, reason="AlreadyExists", message="it exists")
FORBIDDEN = ApiError(status=403, reason="Forbidden", message="no get")
AWAY = ApiError(status=503, reason="", message="away")


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([EXISTS], "belongs to somebody else"),
        ([AWAY, EXISTS], "not allowed"),
    ],
)
def test_an_object_that_may_not_be_read_is_somebody_elses_at_the_first_try_alone(
    answers: list[ApiError], said: str
) -> None:
    assert said in refusal_of(answers, FORBIDDEN)


def test_an_object_that_comes_and_goes_is_not_said_to_be_somebody_elses() -> None:
    gone = ApiError(status=404, reason="NotFound", message="no such job")
    said = refusal_of([AWAY, EXISTS, EXISTS], gone)
    assert "it exists, but is gone each time it is read" in said and "belongs to" not in said


def refusal_of(answers: list[ApiError], found: ApiError) -> str:
    """What a job ends in whose first object is created with these answers, and read with that one."""
    left = list(answers)

    class Server:
        async def create(self, *_: Any, **__: Any) -> Any:
            raise left.pop(0)

        async def get(self, *_: Any) -> Any:
            raise found

    server: Any = Server()
    submission = OperatorlessSubmission(server, mpijob(request()), OperatorSettings(image="x"), tell=print)
    with pytest.raises(RefusedError) as caught:
        asyncio.run(submission.send())
    assert not left
    return str(caught.value)


def test_one_deletion_takes_everything() -> None:
    first, *rest = planned().documents
    assert "ownerReferences" not in first["metadata"]
    for document in (owned(one, name="train-launcher", uid="U") for one in rest):
        (owner,) = document["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", "train-launcher", "U")
        assert "controller" not in owner, "the Job controller would let go of Pods that it controls"
    assert first["spec"]["ttlSecondsAfterFinished"] == 300
    assert planned(ttl=7).launcher["spec"]["ttlSecondsAfterFinished"] == 7
    assert first["spec"]["suspend"] is True


def test_no_operator_sees_these_objects() -> None:
    text = text_of(list(planned().documents))
    assert "mpi-operator" not in text
    assert "managed-by: ringleader\n" not in text
    made = planned()
    service = next(one for one in made.parts if one["kind"] == "Service")
    for pod in (*made.workers, made.launcher["spec"]["template"]):
        labels = pod["metadata"]["labels"]
        assert service["spec"]["selector"].items() <= labels.items()
        assert labels["app.kubernetes.io/managed-by"] == MANAGER


def test_the_launchers_job_tells_of_the_job() -> None:
    view = pods_job_view(planned(np=8, slots=4).launcher)
    assert (view.name, view.on, view.workers, view.slots, view.mpi) == ("train", "pods", 2, 4, "OpenMPI")


def test_what_needs_an_operator() -> None:
    job = mpijob(
        request(
            suspend=True, gang="volcano", queue="q", annotation=(("ringleader/on-worker-failure", "fail"),)
        )
    )
    with pytest.raises(RequestError) as caught:
        check_operatorless(job)
    assert [fault.where for fault in caught.value.faults] == [
        "spec.runPolicy.suspend",
        "spec.runPolicy.schedulingPolicy",
        "metadata.annotations[ringleader/gang]",
        "metadata.annotations[ringleader/on-worker-failure]",
    ]
    check_operatorless(mpijob(request(gang="none")))


def run_launcher(tmp_path: Path, getent: str | None, **annotations: str) -> subprocess.CompletedProcess[str]:
    """Run the launcher's command here, with a getent and our own mpirun."""
    job = mpijob(request())
    meta = replace(job.metadata, annotations={f"ringleader/{key}": one for key, one in annotations.items()})
    made = plan(replace(job, metadata=meta), OperatorSettings(), run="RUN")
    config = next(one for one in made.parts if one["kind"] == "ConfigMap")
    (tmp_path / "hostfile").write_text(config["data"]["hostfile"])
    program(tmp_path / "mpirun", 'echo "ran $1"')
    program(tmp_path / "hostname", "echo train-launcher")
    if getent is not None:
        program(tmp_path / "getent", getent)
    container = made.launcher["spec"]["template"]["spec"]["containers"][0]
    argv = [
        word.replace("$$(", "$(").replace("/etc/mpi/hostfile", str(tmp_path / "hostfile"))
        for word in (*container["command"], *container["args"])
    ]
    for name in ("sh", "date", "sed", "sleep", "cat", "touch"):
        (tmp_path / name).symlink_to(
            next(path for path in (Path("/bin") / name, Path("/usr/bin") / name) if path.exists())
        )
    return subprocess.run(argv, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60)


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.process
def test_the_launcher_waits_until_all_names_resolve(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    late = f"""
echo "$2" >> {asked}
case "$2" in train-worker-1.*) test -e {asked}.late || {{ touch {asked}.late; exit 2; }} ;; esac
"""
    done = run_launcher(tmp_path, late)
    assert (done.returncode, done.stdout) == (0, "ran --allow-run-as-root\n"), done.stderr
    assert asked.read_text().split() == [
        "train-launcher.train",
        "train-worker-0.train.team.svc",
        "train-worker-1.train.team.svc",
        "train-worker-1.train.team.svc",
    ]


@pytest.mark.process
def test_the_launcher_gives_up_and_names_the_host(tmp_path: Path) -> None:
    limit = {"wait-limit": "1"}
    done = run_launcher(tmp_path, 'test "$2" = train-launcher.train', **limit)
    assert done.returncode == 1
    assert "train-worker-0.train.team.svc has no address after 1 seconds" in done.stderr


def test_the_launcher_gives_nobody_up_whose_pod_may_be_queued() -> None:
    made = plan(mpijob(request()), OperatorSettings(wait_timeout=1), run="RUN")
    script = made.launcher["spec"]["template"]["spec"]["containers"][0]["command"][2]
    assert "until getent" in script and "exit 1" not in script


@pytest.mark.process
def test_the_launcher_does_not_wait_where_it_is_told_not_to(tmp_path: Path) -> None:
    done = run_launcher(tmp_path, "exit 2", **{"wait-for-workers": "off"})
    assert (done.returncode, done.stdout) == (0, "ran --allow-run-as-root\n"), done.stderr


@pytest.mark.process
def test_an_image_without_getent_goes_on(tmp_path: Path) -> None:
    done = run_launcher(tmp_path, None)
    assert (done.returncode, done.stdout) == (0, "ran --allow-run-as-root\n"), done.stderr
