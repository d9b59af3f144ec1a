"""The command itself: it comes up, answers probes, counts, and ends as it is told to."""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.controller.running import PATIENCE, holds, job, names, pods, wait
from tests.fork_server import COMMANDS

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(kubeconfig: Path, tmp_path: Path) -> Iterator[Start]:
    """Start ``ringleader operator run``; whatever is left of it at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str, config: Path = kubeconfig) -> subprocess.Popen[str]:
        options = ("--kubeconfig", str(config), "--host", "127.0.0.1", *words)
        command = COMMANDS.command("-m", "ringleader", "operator", "run", *options)
        environ = {key: value for key, value in os.environ.items() if key != "KUBEFLOW_NAMESPACE"}
        log = tmp_path / f"log{len(started)}"
        with log.open("w") as stream:
            process = subprocess.Popen(command, stderr=stream, stdout=subprocess.PIPE, text=True, env=environ)
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE)


def lines(tmp_path: Path, number: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / f"log{number}").read_text().splitlines()]


def said(tmp_path: Path, words: str, number: int = 0) -> dict[str, Any] | None:
    text = (tmp_path / f"log{number}").read_text()
    if not text.endswith("\n"):
        return None
    return next((line for line in lines(tmp_path, number) if words in line["message"]), None)


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def port_of(tmp_path: Path) -> int:
    found = wait(lambda: said(tmp_path, "answers probes"), "it listens")
    return int(found["port"])


def number(text: str, name: str) -> float:
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def test_it_serves_probes_and_numbers_and_gives_the_lease_back_at_the_end(cluster, start, tmp_path):
    process = start("--port", "-1")
    port = port_of(tmp_path)
    wait(lambda: ask(port, "/readyz")[0] == 200, "it is ready")
    assert ask(port, "/healthz") == (200, "ok")
    cluster.create(job())
    wait(lambda: holds(cluster, "Running"), "the job runs")
    holder = cluster.get("leases", "mpi-operator")["spec"]["holderIdentity"]
    assert holder
    text = ask(port, "/metrics")[1]
    assert number(text, "mpi_operator_jobs_created_total") == 1
    assert number(text, "mpi_operator_is_leader") == 1
    assert 'mpi_operator_job_info{launcher="train-launcher",namespace="default"} 1.0' in text
    cluster.kubelet.finish(names(pods(cluster, "launcher"))[0], 0)
    wait(lambda: number(ask(port, "/metrics")[1], "mpi_operator_jobs_successful_total") == 1, "it is counted")
    cluster.delete("mpijobs", "train")
    wait(lambda: "mpi_operator_job_info{" not in ask(port, "/metrics")[1], "the series is gone with the job")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert cluster.get("leases", "mpi-operator")["spec"]["holderIdentity"] == ""
    assert all({"time", "level", "message"} <= line.keys() for line in lines(tmp_path))


def test_it_is_not_ready_while_the_server_is_away(cluster, start, tmp_path):
    start("--port", "-1", "--no-leader-election", "--silence", "0.2")
    port = port_of(tmp_path)
    wait(lambda: ask(port, "/readyz")[0] == 200, "it is ready")
    cluster.faults.go_away()
    code, text = wait(lambda: (found := ask(port, "/readyz"))[0] == 503 and found, "it is not ready")
    assert (code, "has not answered" in text) == (503, True)
    assert ask(port, "/healthz")[0] == 200
    cluster.faults.come_back()
    wait(lambda: ask(port, "/readyz")[0] == 200, "it is ready again")


def test_without_the_crd_it_says_what_to_do(cluster, start, tmp_path):
    cluster.delete("customresourcedefinitions", "mpijobs.kubeflow.org", "")
    process = start("--port", "0", "--log-format", "text")
    assert process.wait(PATIENCE) == 3
    text = (tmp_path / "log0").read_text()
    assert "does not know MPIJobs of kubeflow.org/v2beta1" in text
    assert "ringleader operator crd | kubectl apply -f -" in text
    assert "Traceback" not in text


def test_a_dry_run_says_what_it_would_look_after(cluster, start):
    cluster.create(job())
    process = start("--dry-run", "--port", "8081", "--namespace", "default")
    text, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert text.splitlines() == [
        "would look after 1 MPIJobs in namespace default",
        "would work while holding the Lease default/mpi-operator",
        "would answer probes on port 8081",
    ]


def test_options_of_the_reference_are_understood(cluster, start):
    process = start("--dry-run", "--monitoring-port", "0", "--threadiness", "4", "--kube-api-qps", "5")
    text, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "would answer no probes" in text


def test_a_port_that_is_taken_is_named(start, tmp_path):
    first = start("--port", "-1")
    port = port_of(tmp_path)
    second = start("--port", str(port))
    assert second.wait(PATIENCE) == 3
    assert f"port {port}" in (tmp_path / "log1").read_text()
    assert first.poll() is None
