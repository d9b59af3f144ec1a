"""Who failed first, how, and what is said about it."""

from collections.abc import Sequence

import pytest

from ringleader.kubernetes.operator.decide.decision import JobPods, LogRequest
from ringleader.kubernetes.operator.decide.first_failure import (
    FIRST_FAILURE,
    annotation_of,
    first_failure,
    is_to_be_kept,
    kept_failure,
    log_request,
    with_first_failure,
)
from ringleader.kubernetes.pod_view import ContainerView, PodFailure, PodView, failure_of


def ended(code: int | None, reason: str = "Error", *, at: str = "", **more: object) -> ContainerView:
    fields = {"name": "main", "state": "terminated", "exit_code": code, "reason": reason, "finished_at": at}
    return ContainerView(**{**fields, **more})  # type: ignore[arg-type]


def pod(name: str, *containers: ContainerView, phase: str = "Failed", **more: str) -> PodView:
    role = "launcher" if "launcher" in name else "worker"
    return PodView(name=name, uid=name, role=role, phase=phase, containers=containers, **more)  # type: ignore


def pods(*found: PodView) -> JobPods:
    workers = {i: one for i, one in enumerate(one for one in found if one.role == "worker")}
    launchers = tuple(one for one in found if one.role == "launcher")
    return JobPods(workers=workers, surplus=(), launchers=launchers, remains=(), missing=())


RUNNING = ContainerView(name="main", state="running")
AGAIN = ContainerView(
    name="main",
    state="running",
    restarts=2,
    last_exit_code=3,
    last_reason="Error",
    last_finished_at="2026-01-01T00:00:09Z",
)


@pytest.mark.parametrize(
    ("found", "sentence", "word"),
    [
        (pod("w", ended(1)), "worker w: container main: exit code 1", "Error"),
        (pod("w", ended(137, "OOMKilled")), "worker w: container main: exit code 137 (SIGKILL, OOMKilled)",
         "OOMKilled"),
        (pod("w", ended(139)), "worker w: container main: exit code 139 (SIGSEGV)", "Error"),
        (pod("w", ended(152)), "worker w: container main: exit code 152 (SIGXCPU)", "Error"),
        (pod("w", ended(None, "", signal=11)), "worker w: container main: signal 11 (SIGSEGV)", ""),
        (pod("w", ended(1, message="no\nGPU")), "worker w: container main: exit code 1: no\nGPU", "Error"),
        (pod("w", ended(128, "StartError", message="exec: no such file")),
         "worker w: container main: exit code 128 (StartError): exec: no such file", "StartError"),
        (pod("w", reason="Evicted", message="low on memory"), "worker w: Evicted: low on memory", "Evicted"),
        (pod("w", ended(143), reason="DeadlineExceeded"),
         "worker w: container main: exit code 143 (SIGTERM, DeadlineExceeded)", "DeadlineExceeded"),
        (pod("w", reason="UnexpectedAdmissionError"), "worker w: UnexpectedAdmissionError",
         "UnexpectedAdmissionError"),
        (pod("w"), "worker w: failed", ""),
        (pod("l-launcher-x", AGAIN, phase="Running"), "launcher l-launcher-x: container main: exit code 3",
         "Error"),
        (pod("l-launcher-x",
         ContainerView(name="wait", is_init=True, restarts=1, last_exit_code=4, last_reason="Error"),
         ContainerView(name="main"), phase="Pending"), "launcher l-launcher-x: container wait: exit code 4",
         "Error"),
        (pod("w", ended(2, name="init", is_init=True), ContainerView(name="main")),
         "worker w: container init: exit code 2", "Error"),
        (pod("w", ended(1, at="2026-01-01T00:00:02Z"), ended(9, name="side", at="2026-01-01T00:00:01Z")),
         "worker w: container side: exit code 9", "Error"),
    ],
)  # fmt: skip
def test_how_a_pod_failed(found: PodView, sentence: str, word: str) -> None:
    failure = failure_of(found)
    assert (failure.sentence, failure.word) == (sentence, word)


@pytest.mark.parametrize(
    "found",
    [
        pod("w", RUNNING, phase="Running"),
        pod("w", ended(0, "Completed"), phase="Succeeded"),
        pod("w", phase="Pending"),
        pod("w", ContainerView(name="main", state="running", restarts=1, last_exit_code=0), phase="Running"),
    ],
)
def test_no_failure(found: PodView) -> None:
    assert failure_of(found) is None


@pytest.mark.parametrize(
    ("found", "first"),
    [
        ([("w-0", "00:00:05"), ("w-1", "00:00:03"), ("w-launcher", "00:00:04")], "w-1"),
        ([("a-launcher", "00:00:03"), ("w-1", "00:00:03")], "w-1"),
        ([("w-0", ""), ("w-1", "00:00:03")], "w-1"),
        ([("w-launcher", "00:00:03"), ("w-1", "06:00:00")], "w-1"),
        ([("w-launcher", "06:00:00"), ("w-1", "06:10:00"), ("w-0", "00:00:01")], "w-launcher"),
    ],
    ids=[
        "earliest",
        "a worker before the launcher",
        "a known time first",
        "old ones are another matter",
        "episode",
    ],
)
def test_which_failed_first(found: Sequence[tuple[str, str]], first: str) -> None:
    made = [pod(name, ended(1, at=f"2026-01-01T{at}Z" if at else "")) for name, at in found]
    failure = first_failure(pods(*made))
    assert failure.pod == first


def test_nobody_failed() -> None:
    assert first_failure(pods(pod("w", RUNNING, phase="Running"))) is None


def failure(
    name: str = "w-1", at: str = "2026-01-01T00:10:00Z", log: str = "", container: str = "main"
) -> PodFailure:
    return PodFailure(at=at, pod=name, role="worker", container=container, how="exit code 1", log=log)


@pytest.mark.parametrize(
    ("found", "kept", "is_kept"),
    [
        (failure(), None, True),
        (failure(), failure(), False),
        (failure(at="2026-01-01T00:10:30Z"), failure(), False),
        (failure("w-2", "2026-01-01T00:09:59Z"), failure(), True),
        (failure("w-2", "2026-01-01T00:10:01Z"), failure(), False),
        (failure("w-2", ""), failure(), False),
        (failure("w-2", "2026-01-01T01:00:00Z"), failure(), True),
        (failure("w-1", "2026-01-01T01:00:00Z"), failure(), True),
    ],
)
def test_which_failure_is_kept(found: PodFailure, kept: PodFailure | None, is_kept: bool) -> None:
    assert is_to_be_kept(found, kept) is is_kept


def test_a_failure_survives_in_its_annotation() -> None:
    kept = kept_failure({FIRST_FAILURE: annotation_of(failure(log="line\n" * 500))})
    assert kept is not None
    assert kept == failure(log=("line\n" * 500)[-600:])


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"at": 1, "pod": "w", "role": "", "how": ""}', '{"pod": 1, "nonsense": 2}', "null"],
)
def test_an_annotation_that_somebody_broke_is_no_failure(text: str) -> None:
    assert kept_failure({FIRST_FAILURE: text}) is None


def test_the_log_that_says_more() -> None:
    assert log_request(failure()) == LogRequest(pod="w-1", container="main")
    assert log_request(failure(container="")) is None
    restarted = failure_of(pod("w", AGAIN, phase="Running"))
    assert restarted is not None
    assert log_request(restarted) == LogRequest(pod="w", container="main", previous=True)


def test_what_is_told() -> None:
    text = with_first_failure("Job failed", failure(log="Traceback\nRuntimeError: NCCL\n"))
    first = "Job failed; first failure: worker w-1: container main: exit code 1"
    assert text == f"{first}\nits log ends:\nTraceback\nRuntimeError: NCCL"
    assert with_first_failure("Job failed", failure()) == first
    assert with_first_failure("Job failed", None) == "Job failed"


def test_a_long_log_keeps_its_last_whole_lines_and_fits() -> None:
    text = with_first_failure("Job failed", failure(log="".join(f"line {n}\n" for n in range(1000))))
    assert len(text) <= 1024
    assert text.endswith("line 999")
    assert text.splitlines()[2].startswith("line ")


def test_one_long_line_keeps_its_end() -> None:
    text = with_first_failure("Job failed", failure(log="a" * 5000 + "END"))
    assert len(text) <= 1024
    assert text.endswith("END")


def test_a_head_that_fills_the_message_leaves_no_room_for_a_log() -> None:
    assert "its log ends" not in with_first_failure("x" * 1000, failure(log="line"))
