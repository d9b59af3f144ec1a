"""The gate before the start: which hosts are left out, when a job is refused, and spare hosts of a launch."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ringleader.doctor import host_gate, pod_gate
from ringleader.doctor.active_tests import ActiveResults
from ringleader.doctor.hosts_reading import HostsReading
from ringleader.doctor.judgement import Judgement, host_results
from ringleader.errors import Fault, ProbeError, RefusedError, StoppedError
from ringleader.fabric.check_result import failed, warned
from ringleader.fabric.facts import (
    Clock,
    HostFacts,
    KernelEvent,
    KernelLog,
    Process,
    RdmaDevice,
    RdmaPort,
    Software,
)
from ringleader.kubernetes.objects import node_check
from ringleader.launch import launch_plan
from ringleader.launch.host_probe.probe import Probe
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.job import Host, Job, faults_of

XID = KernelEvent(kind="xid", text="NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.", number=79)
FOUR = tuple(Host(name=f"h{number}", slots=2) for number in range(1, 5))
JOB = Job(command=("true",), hosts=FOUR, check="quick")


def facts(hostname, *events, errors=0, at=1.0):
    counters = {"symbol_error": errors, "port_xmit_packets": 1000, "port_rcv_packets": 1000}
    link = {"state": "ACTIVE", "physical_state": "LinkUp", "rate": 1e11, "link_layer": "InfiniBand"}
    port = RdmaPort(number=1, pkeys=(0xFFFF,), lid=1, sm_lid=1, counters=counters, **link)
    return HostFacts(
        hostname=hostname,
        clock=Clock(read_at=at),
        process=Process(uid=0, capabilities=0, bounding_capabilities=0, limits={}),
        software=Software(python="3.12", executable="/python", ringleader="1"),
        rdma_devices=(RdmaDevice(name="mlx5_0", node_type=1, ports=(port,)),),
        kernel_log=KernelLog(source="/dev/kmsg", events=events),
    )


class Cluster:
    """Stands for the jobs that read and measure."""

    def __init__(self, *bad, silent=(), grows=""):
        self.bad, self.silent, self.grows = bad, silent, grows
        self.measured = []
        self.reads = 0
        self.warnings = []

    def read(self, job, **_words):
        self.reads += 1
        names = [host.name for host in job.hosts if host.name not in self.silent]
        found = {
            name: facts(
                name,
                *([XID] if name in self.bad else []),
                errors=7 * self.reads if name == self.grows else 0,
                at=10.0 * self.reads,
            )
            for name in names
        }
        silent = [Fault(where=f"host {name}", what="no answer", hint="start sshd") for name in self.silent]
        return HostsReading(facts=found, faults=tuple(silent))

    def measure(self, job, **_words):
        self.measured = [host.name for host in job.hosts]
        return ActiveResults(hosts=tuple(self.measured))

    def gate(self, job):
        return host_gate.checked(
            job,
            environ={},
            progress=lambda text: None,
            warn=lambda host, text: self.warnings.append((host, text)) if host else None,
            read=self.read,
            measure=self.measure,
        )


def names(job):
    return [host.name for host in job.hosts]


def test_a_job_whose_hosts_are_well_starts_as_it_is():
    cluster = Cluster()
    assert cluster.gate(JOB) == JOB and (cluster.reads, cluster.measured, cluster.warnings) == (1, [], [])


@pytest.mark.parametrize(
    ("cluster", "reason"),
    [
        (Cluster("h3"), "Xid 79 on GPU an unknown device: it has fallen off the bus"),
        (Cluster(silent=("h3",)), "no answer"),
    ],
)
def test_a_host_that_fails_is_left_out_where_there_are_spare_ones(cluster, reason):
    job = cluster.gate(replace(JOB, spare_hosts=2))
    assert (names(job), job.spare_hosts) == (["h1", "h2", "h4"], 1)
    ((host, text),) = cluster.warnings
    assert host == "h3" and text.startswith("h3 is left out: ") and reason in text and "\n    → " in text


def test_a_job_without_spare_hosts_is_refused_by_name():
    with pytest.raises(RefusedError) as refused:
        Cluster("h1", "h3", silent=("h4",)).gate(replace(JOB, spare_hosts=2))
    assert [fault.where for fault in refused.value.faults] == ["host h4", "host h1", "host h3", "--check"]
    assert refused.value.exit_code == 3 and "kernel.xid" in str(refused.value)
    with pytest.raises(RefusedError):
        Cluster(*names(JOB)).gate(JOB)


@pytest.mark.parametrize(
    ("options", "bad", "is_refused"),
    [
        (ElasticOptions(min_np=4), ("h1", "h2"), False),
        (ElasticOptions(min_np=5), ("h1", "h2"), True),
        (ElasticOptions(min_hosts=3), ("h1", "h2"), True),
        (ElasticOptions(min_np=1), ("h1", "h2", "h3", "h4"), True),
    ],
)
def test_an_elastic_job_continues_on_the_others(options, bad, is_refused):
    cluster, job = Cluster(*bad), replace(JOB, elastic=options)
    if is_refused:
        with pytest.raises(RefusedError, match="--min-np"):
            cluster.gate(job)
        return
    found = cluster.gate(job)
    assert found.hosts == FOUR, "its source names them again"
    assert found.left_out == bad


def test_growing_counters_leave_a_host_out():
    cluster = Cluster(grows="h2")
    job = cluster.gate(replace(JOB, check="active", spare_hosts=1))
    assert names(job) == ["h1", "h3", "h4"] and cluster.reads == 2
    assert "port.errors mlx5_0 port 1: symbol_error 7 in 10 s" in cluster.warnings[0][1]
    assert cluster.measured == names(JOB)
    with pytest.raises(RefusedError):
        Cluster(grows="h2").gate(replace(JOB, check="active"))


@pytest.mark.parametrize("host", ["h2", ""])
def test_a_measurement_that_breaks_is_the_fault_of_the_host_whose_rank_failed(host):
    """Where that isn't known, the job is refused once, not for each host."""
    cluster, job = Cluster(), replace(JOB, check="active", spare_hosts=1)
    broken = ActiveResults(hosts=tuple(names(JOB)), failure="rank 1 was killed", failed_host=host)
    cluster.measure = lambda job, **_words: broken
    if host:
        assert names(cluster.gate(job)) == ["h1", "h3", "h4"]
        return
    with pytest.raises(RefusedError) as refused:
        cluster.gate(job)
    (fault,) = refused.value.faults
    assert fault.where == "--check" and "rank 1 was killed" in fault.what


def result(id, *hosts, verdict=failed, **words):
    return replace(verdict("seen", remedy="do"), id=id, hosts=hosts, **words)


@pytest.mark.parametrize(
    ("results", "left"),
    [
        ([result("active.host", "h2")], ["h2"]),
        ([result("active.pair", "h1", "h3")], ["h3"]),
        ([result("active.pair", "h1", "h3"), result("active.host", "h1")], ["h1"]),
        ([result("gpu.peermem")], []),
        ([result("kernel.xid")], ["h1", "h2", "h3", "h4"]),
        ([result("limit.memlock", "h1", verdict=warned)], []),
        ([result("roce.mtu", "h1", cause="port.state mlx5_0")], []),
    ],
)
def test_whose_failure_it_is(results, left, monkeypatch):
    judged = Judgement(by_host=dict.fromkeys(names(JOB), ()), measurements=tuple(results))
    assert sorted(host_gate.left_out(judged, FOUR)) == left
    assert bool(host_gate.shared(judged)) == (results[0].id == "gpu.peermem" and not left)


class Prober:
    """Stands for the probe: these hosts do not answer."""

    def __init__(self, *silent):
        self.silent = silent

    def __call__(self, job, **_words):
        bad = [Fault(where=f"host {name}", what="no answer") for name in names(job) if name in self.silent]
        if bad:
            raise ProbeError(bad)
        reports = tuple(SimpleNamespace(host=host) for host in job.hosts)
        return Probe(facts=reports, ssh=None)


@pytest.mark.parametrize(
    ("spare", "silent", "left"),
    [
        (0, (), ["h1", "h2", "h3", "h4"]),
        (1, (), ["h1", "h2", "h3"]),
        (2, ("h1", "h3"), ["h2", "h4"]),
        (1, ("h1", "h3"), None),
        (0, ("h1",), None),
    ],
)
def test_a_job_is_planned_on_the_first_hosts_that_can_take_part(spare, silent, left):
    said = []
    listener = SimpleNamespace(warning=said.append, progress=lambda text: None)
    job = replace(JOB, spare_hosts=spare)
    if left is None:
        with pytest.raises(ProbeError):
            launch_plan._probed(job, Prober(*silent), listener)
        return
    planned, probed = launch_plan._probed(job, Prober(*silent), listener)
    assert names(planned) == left == [report.host.name for report in probed.facts]
    assert len(said) == len(silent)


def test_what_is_wrong_with_options():
    for changes, what in (
        ({"spare_hosts": 4}, "4 spare of 4 hosts leaves none to run on"),
        ({"spare_hosts": 1, "elastic": ElasticOptions()}, "means nothing for an elastic job"),
        ({"spare_hosts": -1}, "-1 spare hosts"),
        ({"check": "slow"}, "'slow' is unknown"),
    ):
        (fault,) = faults_of(replace(JOB, **changes))
        assert what in fault.what


def test_a_signal_during_the_second_reading_ends_the_check():
    cluster = Cluster()
    read = cluster.read

    def stopped(job, **words):
        if cluster.measured:
            raise StoppedError(15)
        return read(job, **words)

    cluster.read = stopped
    with pytest.raises(StoppedError):
        cluster.gate(replace(JOB, check="active"))


@pytest.mark.parametrize("hosts", [(), FOUR[:1]])
def test_a_single_host_is_measured_too(hosts, monkeypatch):
    monkeypatch.setattr(host_gate, "left_out", lambda *_hosts, **_words: {})
    cluster = Cluster()
    if not hosts:
        cluster.read = lambda job, **_words: HostsReading(facts={"localhost": facts("h")})
    measured = []
    cluster.measure = lambda job, **_words: measured.append(job) or ActiveResults(hosts=("h1",))
    job = replace(JOB, hosts=hosts, check="active")
    assert cluster.gate(job) == job and len(measured) == 1


def test_a_reading_that_fails_afterwards_is_no_check_of_hosts():
    ended = Fault(where="the ranks", what="exit code 1")
    judged = host_gate.judge({"h1": facts("h1"), "h2": facts("h2")}, faults=[ended])
    assert host_gate.left_out(judged, FOUR[:2]) == {}
    assert host_gate.shared(judged)[0] == "the job that read the hosts failed: exit code 1"


def test_what_a_dry_run_says():
    lines = host_gate.dry_run_lines(replace(JOB, python="/py", kernel_log="/var/log/k", spare_hosts=1))
    assert lines == [
        "quick: on each host one rank: /py -P -m ringleader.doctor.facts_program 5 /var/log/k",
        "at most 1 failing host can be left out; the job is refused if more fail",
    ]
    active = host_gate.dry_run_lines(replace(JOB, check="active", elastic=ElasticOptions(min_np=2)))
    assert "for up to 120 s together" in active and "2 ranks on 1 host" in active[-1]
    assert host_gate.dry_run_lines(replace(JOB, check=None)) == []


# --- in a Pod ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "is_fit", "said"),
    [
        (facts("p"), True, "node gpu-7: no fault by port.state"),
        (
            facts("p", XID),
            False,
            "node gpu-7: kernel.xid: Xid 79 on GPU an unknown device: it has fallen off the bus",
        ),
        (replace(facts("p"), kernel_log=KernelLog(why="no such file")), True, "kernel.xid was skipped: "),
    ],
)
def test_a_pod_refuses_its_node_for_its_own_faults_alone(found: HostFacts, is_fit: bool, said: str) -> None:
    results = host_results(found)
    elsewhere = failed("8 bytes", id="host.memlock", remedy="ulimit -l unlimited")
    assert pod_gate.verdict("gpu-7", [*results, elsewhere])[0] is is_fit
    text = pod_gate.verdict("gpu-7", [*results, elsewhere])[1]
    assert said in text and "memlock" not in text
    assert is_fit or " → restart the host" in text
    assert is_fit or len(text.encode()) < 2048, "what a kubelet takes of a log"


@pytest.mark.process
def test_the_check_of_a_pod_runs_and_names_its_node() -> None:
    """As its init container runs it, here with nothing to find but what this machine has."""
    argv = [sys.executable, "-P", "-m", *node_check.COMMAND]
    done = subprocess.run(
        argv, env={**os.environ, node_check.NODE: "gpu-7"}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode in (0, 3) and done.stdout.startswith("node gpu-7: "), done
