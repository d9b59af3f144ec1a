"""The hook by which a worker's Pod tells the host agents in it that it is to go."""

import subprocess
import sys

import pytest
from tests.unit.decide_world import SETTINGS, make_job

from ringleader.kubernetes.mpijob.annotations import MIN_WORKERS
from ringleader.kubernetes.objects.launcher_and_workers import (
    NOTICE,
    launcher_template,
    worker_pod,
)

ELASTIC = make_job(annotations={MIN_WORKERS: "1"})
AGENT = """
import os, signal, sys, time
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def told(number, frame):
    os.write(log, b"%s %d\\n" % (name, number))
    os._exit(0)
signal.signal(signal.SIGUSR1, told)
name = b"outer"
if not os.fork():
    name = b"inner"
os.write(1, b"up\\n")
for _ in range(300):
    time.sleep(0.1)
"""


def test_workers_of_elastic_jobs_have_it_and_no_other_pod():
    pod = worker_pod(ELASTIC, 0, SETTINGS)["spec"]["containers"][0]
    assert pod["lifecycle"] == {"preStop": {"exec": {"command": ["/bin/sh", "-c", NOTICE]}}}
    assert "lifecycle" not in worker_pod(make_job(), 0, SETTINGS)["spec"]["containers"][0]
    assert "lifecycle" not in launcher_template(ELASTIC, SETTINGS)["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("theirs", "expected"), [("preStop", {"preStop"}), ("postStart", {"postStart", "preStop"})]
)
def test_a_hook_of_the_users_stays(theirs, expected):
    mine = {theirs: {"exec": {"command": ["mine"]}}}
    containers = [{"name": "main", "image": "mpi", "lifecycle": mine}]
    job = make_job(annotations={MIN_WORKERS: "1"}, template={"containers": containers})
    found = worker_pod(job, 0, SETTINGS)["spec"]["containers"][0]["lifecycle"]
    assert found.keys() == expected and mine.items() <= found.items()


@pytest.mark.process
def test_it_tells_the_outer_process_of_an_agent_and_waits_for_its_end(tmp_path):
    program = tmp_path / "ranks" / "host_agent.py"
    program.parent.mkdir()
    program.write_text(AGENT)
    log = tmp_path / "log"
    script = NOTICE.replace("agents/host_[a]gent.py", f"{program.parent}/host_[a]gent.py")  # no other's agent
    agent = subprocess.Popen((sys.executable, str(program), str(log)), stdout=subprocess.PIPE)
    try:
        assert [agent.stdout.readline() for _ in range(2)] == [b"up\n"] * 2
        hook = subprocess.Popen(("/bin/sh", "-c", script), stderr=subprocess.PIPE)
        assert agent.wait(30) == 0
        _, err = hook.communicate(timeout=30)
        assert (hook.returncode, err) == (0, b"")
        assert log.read_text() == "outer 10\n"
    finally:
        agent.kill()
