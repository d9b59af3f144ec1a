"""The command itself: it comes up, answers probes, counts, and ends as it is told to."""

import json
import re
import signal
import urllib.error
import urllib.request
from typing import Any

import pytest
from tests.controller.running import PATIENCE, holds, job, names, pods, wait
from tests.kube.user_session import Command, Start


@pytest.fixture
def run(start: Start) -> Start:
    """Start ``ringleader operator run``."""
    return lambda *words: start("operator", "run", "--host", "127.0.0.1", *words)


def lines(command: Command) -> list[dict[str, Any]]:
    return [json.loads(line) for line in command.err.splitlines()]


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def ready(command: Command) -> int:
    """Wait until it is ready and return its port."""
    found = wait(lambda: re.search(r'answers probes.*"port": (\d+)', command.err), "it listens")
    wait(lambda: ask(int(found[1]), "/readyz")[0] == 200, "it is ready")
    return int(found[1])


def number(text: str, name: str) -> float:
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def test_it_serves_probes_and_numbers_and_gives_the_lease_back_at_the_end(cluster, run):
    command = run("--port", "-1")
    port = ready(command)
    assert ask(port, "/healthz") == (200, "ok")
    cluster.create(job())
    wait(lambda: holds(cluster, "Running"), "the job runs")
    assert cluster.get("leases", "mpi-operator")["spec"]["holderIdentity"]
    text = ask(port, "/metrics")[1]
    assert number(text, "mpi_operator_jobs_created_total") == 1
    assert number(text, "mpi_operator_is_leader") == 1
    assert 'mpi_operator_job_info{launcher="train-launcher",namespace="default"} 1.0' in text
    cluster.kubelet.finish(names(pods(cluster, "launcher"))[0], 0)
    wait(lambda: number(ask(port, "/metrics")[1], "mpi_operator_jobs_successful_total") == 1, "it is counted")
    cluster.delete("mpijobs", "train")
    wait(lambda: "mpi_operator_job_info{" not in ask(port, "/metrics")[1], "the series is gone with the job")
    command.press(signal.SIGTERM)
    assert command.ends() == 0
    assert cluster.get("leases", "mpi-operator")["spec"]["holderIdentity"] == ""
    assert all({"time", "level", "message"} <= line.keys() for line in lines(command))


def test_it_is_not_ready_while_the_server_is_away(cluster, run):
    port = ready(run("--port", "-1", "--no-leader-election", "--silence", "0.2"))
    cluster.faults.go_away()
    text = wait(lambda: (found := ask(port, "/readyz"))[0] == 503 and found[1], "it is not ready")
    assert "has not answered" in text
    assert ask(port, "/healthz")[0] == 200
    cluster.faults.come_back()
    wait(lambda: ask(port, "/readyz")[0] == 200, "it is ready again")


def test_without_the_crd_it_says_what_to_do(cluster, run):
    cluster.delete("customresourcedefinitions", "mpijobs.kubeflow.org")
    run("--port", "0", "--log-format", "text").ended(
        3, "does not know MPIJobs of kubeflow.org/v2beta1", "ringleader operator crd | kubectl apply -f -"
    )


def test_a_dry_run_says_what_it_would_look_after(cluster, run):
    """Options of the reference are understood."""
    cluster.create(job())
    command = run("--dry-run", "--port", "8081", "--namespace", "default").ended()
    assert command.out.splitlines() == [
        "would look after 1 MPIJobs in namespace default",
        "would work while holding the Lease default/mpi-operator",
        "would answer probes on port 8081",
    ]
    command = run("--dry-run", "--monitoring-port", "0", "--threadiness", "4", "--kube-api-qps", "5").ended()
    assert "would answer no probes" in command.out


def test_a_port_that_is_taken_is_named(cluster, run):
    first = run("--port", "-1")
    port = ready(first)
    run("--port", str(port)).ended(3, f"port {port}")
    assert first.process.poll() is None
