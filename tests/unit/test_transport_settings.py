"""Settings of transports of a job: hosts' answers become variables of their ranks, and lines for people."""

import json
from dataclasses import replace

import pytest
from tests.unit.fabric.machines import GPU_HOST, changed, gpu_machine

from ringleader.agents import host_facts_script
from ringleader.dataclass_json import document
from ringleader.fabric.facts import Library
from ringleader.fabric.readers.host import without_measurements
from ringleader.launch.host_probe.host_answer import HostReport, report_of
from ringleader.launch.host_probe.probe import Probe, remote_question
from ringleader.launch.launch_plan import prepare
from ringleader.launch.outcome import Listener
from ringleader.launch.transport_settings import JobSettings, job_settings
from ringleader.plan.job import Family, Host, Job
from ringleader.plan.rank_placement import place
from ringleader.render.rank_environment import FreePorts, Master, rank_environment
from ringleader.render.transport_settings import dry_run_lines

AGENT = host_facts_script.__file__.replace("host_facts_script", "agent")


class Quiet(Listener):
    """Hears all and says nothing."""


def report(name: str, fabric, gpus: tuple[str, ...] = ()) -> HostReport:
    here = {"hostname": name, "identity": f"id-{name}", "is_local": False, "cpus": (0, 1), "gpus": gpus}
    versions = {"python_version": "3.12.3", "ringleader_version": "1", "ringleader_checksum": ""}
    nothing = {
        "mpirun": "",
        "mpi_version": "",
        "interfaces": {},
        "names": {},
        "script": None,
        "program": None,
    }
    return HostReport(
        host=Host(name=name, slots=2), workdir=True, fabric=fabric, **here, **versions, **nothing
    )


@pytest.fixture
def settings_of(make_mpi):
    def settings(*reports: HostReport, caller=None, **job) -> JobSettings:
        asked = Job(command=("x",), hosts=tuple(one.host for one in reports), **job)
        plan = place(asked, reports)
        return job_settings(asked, plan, make_mpi(Family.OPENMPI5), reports, caller or {})

    return settings


def test_each_host_gets_its_own(settings_of):
    other = changed(GPU_HOST, rdma_files=(replace(GPU_HOST.rdma_files[0], rdma_device="mlx5_1"),))
    found = settings_of(report("h1", GPU_HOST), report("h2", other), report("h3", None))
    assert found.variables(0) == found.variables(1)
    assert found.variables(0)["NCCL_IB_HCA"] == "=mlx5_0:1"
    assert found.variables(2)["NCCL_IB_HCA"] == "=mlx5_1:1"
    assert found.variables(4) == {}


def test_lines_of_a_dry_run(settings_of, golden):
    found = settings_of(report("h1", GPU_HOST), report("h2", None))
    golden("dry_run.transports", "\n".join([*dry_run_lines(found.shown()), ""]))


@pytest.mark.parametrize(
    "user",
    [
        {"caller": {"NCCL_IB_HCA": "mlx5"}},
        {"env": (("NCCL_IB_HCA", "mlx5"),)},
        {"extra_mpirun_args": ("-x", "NCCL_IB_HCA=mlx5")},
    ],
)
def test_never_over_what_the_user_set(settings_of, user):
    found = settings_of(report("h1", GPU_HOST), report("h2", GPU_HOST), **user)
    assert "NCCL_IB_HCA" not in found.variables(0) and "NCCL_IB_TIMEOUT" in found.variables(0)


def test_ranks_get_the_nic_at_their_gpu(settings_of):
    library = (Library(name="libucp.so.0", path="/usr/lib/libucp.so.0"),)
    machine = changed(gpu_machine(swapped=True), libraries=library)
    reports = [report(name, machine, ("0", "1")) for name in ("h1", "h2")]
    found = settings_of(*reports)
    assert found.hosts["h1"].settings == ()
    assert [found.variables(rank)["UCX_NET_DEVICES"] for rank in range(4)] == ["mlx5_7:1", "mlx5_6:1"] * 2
    shown = dry_run_lines(found.shown())
    assert any(line.startswith("ranks 1, 3: UCX_NET_DEVICES='mlx5_6:1'  # ") for line in shown)


def test_a_required_wire_keeps_libraries_from_another(settings_of):
    hosts = (report("h1", GPU_HOST), report("h2", GPU_HOST))
    assert settings_of(*hosts, require=("rdma",)).variables(0)["NCCL_NET"] == "IB"
    assert settings_of(*hosts, require=("tcp",)).variables(2)["NCCL_NET"] == "Socket"
    assert "NCCL_NET" not in settings_of(*hosts, require=("shm",)).variables(0)
    mine = settings_of(*hosts, require=("rdma",), caller={"NCCL_NET": "Socket"})
    assert "NCCL_NET" not in mine.variables(0)
    assert any("the user has set NCCL_NET" in line for line in dry_run_lines(mine.shown()))


@pytest.mark.parametrize("job", [{"transport_settings": False}, {"uncoupled": True}])
def test_nothing_where_nobody_wants_it(settings_of, job):
    assert settings_of(report("h1", GPU_HOST), report("h2", GPU_HOST), **job) == JobSettings()
    assert settings_of(report("h1", GPU_HOST)) == JobSettings(), "on one host"


def test_settings_are_weaker_than_all_the_rest(make_mpi):
    one = report("h1", None)
    job = Job(command=("x",), hosts=(one.host,), network_interface="eth1")
    plan = place(job, (one,))
    found = rank_environment(
        plan=plan,
        place=plan.ranks[0],
        job=job,
        mpi=make_mpi(Family.OPENMPI5),
        job_id="J",
        master=Master(address="a", port="1", jax_port="2"),
        caller={"UCX_TLS": "tcp"},
        python="/bin/python",
        settings={"NCCL_SOCKET_IFNAME": "no", "UCX_TLS": "no", "RANK": "no", "NCCL_IB_TIMEOUT": "20"},
    ).set
    assert found["NCCL_SOCKET_IFNAME"] == "=eth1" and found["UCX_TLS"] == "tcp"
    assert found["RANK"] == "0" and found["NCCL_IB_TIMEOUT"] == "20"


@pytest.mark.parametrize(("hosts", "wanted", "asked"), [(2, True, True), (2, False, False), (1, True, False)])
def test_facts_are_asked_of_several_hosts_only(hosts, wanted, asked):
    names = tuple(Host(name=f"h{at}") for at in range(hosts))
    job = Job(command=("x",), hosts=names, transport_settings=wanted)
    assert ("facts" in remote_question({}, job, names, frozenset(), None)) is asked


ANSWER = {
    **{"hostname": "h", "identity": "i", "python": ["/p", "3.12.1"], "cores": [[0]], "cpu_limit": None},
    **{"gpus": [], "interfaces": {}, "addresses": [], "names": {}, "limits": {}, "workdir": True},
}


@pytest.mark.parametrize("facts", [None, {}, [], "x", {"hostname": 3}])
def test_answers_without_usable_facts(facts):
    answer = {**ANSWER, "facts": facts} if facts is not None else ANSWER
    assert report_of(Host(name="h"), answer, local_identity="").fabric is None
    sent = json.loads(json.dumps(document(without_measurements(GPU_HOST))))
    assert report_of(Host(name="h"), {**ANSWER, "facts": sent}, local_identity="").fabric == GPU_HOST


def test_a_host_without_rdma_starts_no_reader(tmp_path):
    known = host_facts_script.answer({"agent": AGENT, "facts": True}, {}, tmp_path)
    assert "facts" not in known  # a test that is not marked must not start a process


@pytest.mark.process
def test_a_host_reads_itself_with_the_package_around_the_agent(tmp_path):
    port_files = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    port_files.mkdir(parents=True)
    (port_files / "state").write_text("4: ACTIVE\n")
    known = host_facts_script.answer({"agent": AGENT, "facts": True}, {}, tmp_path)
    (device,) = known["facts"]["rdma_devices"]
    (tmp_path / "ringleader").mkdir()
    (tmp_path / "ringleader/__init__.py").write_text("print('{broken')\n")
    assert host_facts_script.settings_facts(str(tmp_path / "ringleader/agents/rank_agent.py")) is None
    assert device["name"] == "mlx5_0" and device["ports"][0]["state"] == "ACTIVE"


def test_agents_are_told(tmp_path):
    """From the probe's answers to the message that starts a rank; and the dry run's text."""
    reports = tuple(report(name, GPU_HOST) for name in ("h1", "h2"))
    prepared = prepare(
        Job(command=("true",), hosts=tuple(one.host for one in reports), mpi="embedded"),
        environ={"PATH": "/bin", "HOME": str(tmp_path), "NCCL_IB_TIMEOUT": "22"},
        listener=Quiet(),
        job_id="JOB",
        prober=lambda *_, **__: Probe(facts=reports, ssh=None),
    )
    environment = prepared.start_message(3, FreePorts(master=1, jax=2), reads=False)["env"]
    assert environment["NCCL_IB_HCA"] == "=mlx5_0:1" and environment["NCCL_IB_TIMEOUT"] == "22"
    shown = "\n".join(dry_run_lines(prepared.settings.shown()))
    assert (
        "h1, h2: NCCL_IB_TIMEOUT not set: the user's environment sets NCCL_IB_TIMEOUT=22; 20 would fit"
        in shown
    )
