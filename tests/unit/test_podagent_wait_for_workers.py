"""How a launcher waits for its workers: rounds and deadlines on our own clock, questions on loopback."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.time_limits import patience

from ringleader.errors import RefusedError
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.pod.__main__ import hosts_of, main
from ringleader.kubernetes.pod.wait_for_workers import (
    LONGEST_PAUSE,
    Limits,
    PodProbe,
    ProbeResult,
    Readiness,
    SshProbe,
    port_in_ssh_config,
    wait_for,
)

READY, NO_ADDRESS, NO_ANSWER = (
    ProbeResult(readiness=Readiness.READY),
    ProbeResult(readiness=Readiness.NO_ADDRESS),
    ProbeResult(readiness=Readiness.NO_ANSWER),
)


class Time:
    """A clock that only moves where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.said: list[str] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        return self.now


def wait(
    answers: dict[str, Iterable[ProbeResult]],
    *,
    timeout: float = 60.0,
    total: float | None = None,
    knows_port: bool = True,
) -> tuple[Time, list[str]]:
    """Wait for hosts that give these answers in turn, the last one for ever."""
    time, asked = Time(), []
    left = {host: list(given) for host, given in answers.items()}

    async def ask(host: str) -> ProbeResult:
        asked.append(host)
        return left[host].pop(0) if len(left[host]) > 1 else left[host][0]

    limits = Limits(timeout=timeout, total=total, knows_port=knows_port)
    asyncio.run(
        wait_for(list(answers), ask, limits, say=time.said.append, clock=time.clock, sleep=time.sleep)
    )
    return time, asked


def test_hosts_that_are_ready_are_not_asked_again() -> None:
    time, asked = wait({"a": [READY], "b": [NO_ADDRESS, NO_ANSWER, READY]})
    assert asked == ["a", "b", "b", "b"]
    assert len(time.pauses) == 2
    assert time.said[-1].startswith("all 2 workers are ready")


def test_pauses_grow_and_people_hear_who_is_missing() -> None:
    slow = [NO_ANSWER] * 40
    time, _ = wait({"w-0.j": [*slow, READY], "w-1.j": [READY]}, timeout=1000.0)
    assert time.pauses == sorted(time.pauses)
    assert time.pauses[0] < 0.2
    assert time.pauses[-1] == LONGEST_PAUSE
    told = [text for text in time.said if text.startswith("waiting for 1 of 2 workers: w-0 does not answer")]
    assert len(told) > 3


def test_the_time_is_over_and_every_missing_host_is_named() -> None:
    hosts = {f"w-{index}": [NO_ANSWER if index % 2 else NO_ADDRESS] for index in range(8)} | {"ok": [READY]}
    with pytest.raises(RefusedError) as raised:
        wait(hosts, timeout=30.0)
    faults = raised.value.faults
    assert faults[0].what == "8 of 9 workers are not ready; 30 s without an answer is too long"
    assert [fault.where for fault in faults[1:]] == [f"w-{index}" for index in range(8)]
    with pytest.raises(RefusedError, match="8 of 9 workers were not ready after 45 s"):
        wait(hosts, timeout=30.0, total=45.0)


def test_workers_that_are_queued_are_waited_for_as_long_as_it_takes() -> None:
    hours = [NO_ADDRESS] * 5000  # with 5 s between them: seven hours
    time, _ = wait({"a": [READY], "b": [*hours, NO_ANSWER, READY]}, timeout=900.0)
    assert time.now > 6 * 3600
    assert time.said[-1].startswith("all 2 workers are ready")


def test_the_time_of_each_worker_begins_with_its_address() -> None:
    late = [NO_ADDRESS] * 1000
    slow = [NO_ANSWER] * 100  # 500 s of the 900 s
    time, _ = wait(
        {"a": [READY], "b": [*late, *slow, READY], "c": [*late, *late, *slow, READY]}, timeout=900.0
    )
    assert time.said[-1].startswith("all 3 workers are ready")
    with pytest.raises(RefusedError, match="2 of 3"):
        wait({"a": [READY], "b": [NO_ADDRESS, NO_ANSWER], "c": [NO_ADDRESS]}, timeout=900.0)


def test_a_worker_that_lost_its_address_begins_anew() -> None:
    turns = [one for _ in range(5) for one in (*[NO_ANSWER] * 100, NO_ADDRESS)]
    wait({"a": [READY], "b": [*turns, READY]}, timeout=900.0)


def test_a_limit_of_the_job_holds_for_workers_without_an_address() -> None:
    with pytest.raises(RefusedError, match="1 of 2 workers were not ready after 60 s"):
        wait({"a": [READY], "b": [NO_ADDRESS]}, total=60.0)
    time, _ = wait({"a": [READY], "b": [*[NO_ANSWER] * 100, READY]}, timeout=10.0, total=3600.0)
    assert time.said[-1].startswith("all 2 workers are ready")


def test_no_pause_goes_beyond_the_deadline() -> None:
    time = Time()

    async def ask(host: str) -> ProbeResult:
        return NO_ANSWER

    with pytest.raises(RefusedError):
        limits = Limits(timeout=3.0)
        asyncio.run(wait_for(["a"], ask, limits, say=time.said.append, clock=time.clock, sleep=time.sleep))
    assert sum(time.pauses) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("answers", "goes_on"),
    [
        ({"a": [NO_ANSWER], "b": [NO_ANSWER]}, True),
        ({"a": [NO_ANSWER], "b": [*[NO_ADDRESS] * 1000, NO_ANSWER]}, True),
        ({"a": [NO_ANSWER], "b": [*[NO_ADDRESS] * 1000, READY]}, False),
        ({"a": [NO_ANSWER], "b": [READY]}, False),
    ],
)
def test_where_the_port_is_unknown_only_silence_of_all_is_passed_over(
    answers: dict[str, list[ProbeResult]], goes_on: bool
) -> None:
    if goes_on:
        time, _ = wait(answers, knows_port=False)  # type: ignore[arg-type]
        assert "continuing" in time.said[-1]
    else:
        with pytest.raises(RefusedError):
            wait(answers, knows_port=False)  # type: ignore[arg-type]


@asynccontextmanager
async def listener(greeting: bytes) -> AsyncIterator[int]:
    """Something on a free port of the loopback that greets whoever connects."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


@pytest.mark.parametrize(
    ("greeting", "readiness"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", Readiness.READY),
        (b"HTTP/1.1 400\r\n", Readiness.NO_ANSWER),
        (b"", Readiness.NO_ANSWER),
    ],
)
def test_only_an_sshd_counts(greeting: bytes, readiness: Readiness) -> None:
    async def asked() -> ProbeResult:
        async with listener(greeting) as port:
            return await SshProbe([port])("127.0.0.1")

    assert asyncio.run(asked()).readiness is readiness


def test_where_an_address_is_enough_nothing_is_sent() -> None:
    """Proxies of a mesh with strict mTLS refuse whatever comes from an init container."""

    async def asked() -> ProbeResult:
        async with listener(b"") as port:
            return await SshProbe([port], by_address=True)("127.0.0.1")

    assert asyncio.run(asked()).readiness is Readiness.READY
    running = cast(Cluster, Pods(pod("Running", "False")))
    assert asyncio.run(PodProbe(running, "team", by_address=True)("w-0.j")).readiness is Readiness.READY
    pending = cast(Cluster, Pods(pod("Pending", "False")))
    assert asyncio.run(PodProbe(pending, "team", by_address=True)("w-0.j")).readiness is Readiness.NO_ADDRESS


def test_the_first_that_answers_tells_the_port_for_all() -> None:
    async def asked() -> list[ProbeResult]:
        async with listener(b"SSH-2.0-x\r\n") as right, listener(b"no") as wrong:
            question = SshProbe([wrong, right])
            first = await question("127.0.0.1")
            other = SshProbe([wrong])
            return [first, await question("127.0.0.1"), await other("127.0.0.1")]

    first, second, third = asyncio.run(asked())
    assert (first.readiness, second.readiness, third.readiness) == (
        Readiness.READY,
        Readiness.READY,
        Readiness.NO_ANSWER,
    )


def test_a_host_without_a_name() -> None:
    answer = asyncio.run(SshProbe([22])("no-such-host.invalid"))
    assert answer.readiness is Readiness.NO_ADDRESS
    assert "no address" in str(answer)


@pytest.mark.parametrize(
    ("text", "ports"),
    [("user me\nhostname w\nport 2222\n", (2222,)), ("", ()), ("port x\n", ()), ("sendenv PORT\n", ())],
)
def test_the_port_that_the_images_ssh_turns_to(tmp_path: Path, text: str, ports: tuple[int, ...]) -> None:
    (tmp_path / "config").write_text(text)
    assert port_in_ssh_config(tmp_path / "config") == ports
    assert port_in_ssh_config(tmp_path / "none") == ()


class Pods:
    """A cluster that knows of one Pod at most."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.asked: list[tuple[str, str]] = []

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        self.asked.append((name, namespace))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def pod(phase: str, ready: str) -> dict[str, Any]:
    return {"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}}


@pytest.mark.parametrize(
    ("answer", "readiness", "text"),
    [
        (pod("Running", "True"), Readiness.READY, "ready"),
        (pod("Running", "False"), Readiness.NO_ANSWER, "is Running, not ready"),
        ({}, Readiness.NO_ADDRESS, "is Pending, not ready"),
        (ApiError(status=404, reason="NotFound", message="gone"), Readiness.NO_ADDRESS, "does not exist yet"),
        (
            ApiError(status=403, reason="Forbidden", message="no"),
            Readiness.NO_ADDRESS,
            "cannot be looked at: no",
        ),
        (UnreachableError("reset"), Readiness.NO_ANSWER, "cannot be looked at: reset"),
    ],
)
def test_pods_are_asked_for_by_name(answer: Any, readiness: Readiness, text: str) -> None:
    pods = Pods(answer)
    said = asyncio.run(PodProbe(cast(Cluster, pods), "team")("train-worker-1.train.team.svc"))
    assert (said.readiness, str(said)) == (readiness, text)
    assert pods.asked == [("train-worker-1", "team")]


def test_hosts_of_both_dialects() -> None:
    assert hosts_of("a.j slots=2\nb.j slots=2\n", "") == ["a.j", "b.j"]
    assert hosts_of("l.j:2\na.j:2\n\n", "l") == ["a.j"]
    assert hosts_of("", "") == []


def test_the_whole_init_container(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostfile, tools = tmp_path / "hostfile", tmp_path / "tools"
    tools.mkdir()
    hostfile.write_text("train-launcher.train.team.svc slots=1\n")
    words = ["wait", f"--tools={tools}", f"--hostfile={hostfile}", "--timeout=0.1", "--port=1"]
    assert main([*words, "--launcher=train-launcher"]) == 0, "there is no worker to wait for"
    assert sorted(path.name for path in tools.iterdir()) == [
        "check",
        "contacted",
        "hosts.sh",
        "job.sh",
        "kubexec.sh",
        "launch",
        "ssh",
    ]
    hostfile.write_text("127.0.0.1 slots=1\n")
    assert main(words) == 3
    assert "1 of 1 workers are not ready; 0.1 s without an answer" in capsys.readouterr().err
    assert main([*words, "--wait-for=address"]) == 0
    hostfile.write_text("no-such-host.invalid slots=1\n")
    assert main([*words, "--wait-for=off"]) == 0
    assert main([*words, "--limit=0.1"]) == 3
    assert "1 of 1 workers were not ready after 0.1 s" in capsys.readouterr().err
    assert main([*words[:2], "--hostfile=/no/such/file", "--timeout=1"]) == 3
    assert "/no/such/file" in capsys.readouterr().err


@pytest.mark.process
def test_it_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    hostfile, tools = tmp_path / "hostfile", tmp_path / "tools"
    tools.mkdir()
    hostfile.write_text("127.0.0.1 slots=1\n")
    words = ["wait", f"--tools={tools}", f"--hostfile={hostfile}", "--timeout=600", "--port=1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ringleader.kubernetes.pod", *words], stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + patience(60)
        while not (tools / "job.sh").exists():
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        process.terminate()
        assert process.wait(60) == 143, "its own handler: the first process of a container has no other"
    finally:
        process.kill()
        process.wait()
