"""What engines are given, what hosts answer about them, and what is made of an MPI's ssh in a container."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from ringleader.agents import container_main
from ringleader.errors import ProbeError
from ringleader.launch.host_probe.container_probe import HERE, ContainerQuery, engine_of, image_faults
from ringleader.launch.launch_plan import Prepared, contained
from ringleader.launch.mpirun import ssh_relay
from ringleader.launch.transport_settings import JobSettings
from ringleader.plan.containers import engines_for, is_file, mounts
from ringleader.plan.job import Family, Host, Job, faults_of
from ringleader.plan.rank_placement import place
from ringleader.render.container_command import ContainerHost, container_command
from ringleader.render.dry_run import dry_run_text
from ringleader.render.mpirun_command import mpirun_command


def test_which_engines_may_start_an_image():
    assert engines_for(IMAGE, None) == ("podman", "docker")
    assert engines_for("train.sif", None) == ("apptainer",)
    assert engines_for("/images/train.sqsh", None) == ("enroot",)
    assert engines_for("train.sif", "podman") == ("podman",)
    assert is_file("images/train.sif", None) and is_file("/a/b", "enroot") and not is_file("x", "enroot")
    assert not is_file(IMAGE, None) and not is_file("docker://a/b", "apptainer")


IMAGE = "registry.example/team/train:1"
JOB = Job(
    command=("python", "train.py"),
    container=IMAGE,
    container_mounts=("/data:/data:ro", "/scratch"),
    workdir="/home/alice/my digits",
)
DEVICES = frozenset(("infiniband", "nvidia", "cdi", "amd"))
LOGS = ("/dev/kmsg", "/var/log/kern.log")


def engine(name, user=0, **more):
    return ContainerHost(engine=f"/usr/bin/{name}", user=(user, user), groups=(44, 109), **more)


def test_golden_commands_of_every_engine(golden):
    lines = []
    for name in ("podman", "docker", "apptainer", "enroot"):
        for user, devices in ((0, frozenset[str]()), (1000, DEVICES)):
            words = container_command(
                engine(name, user, devices=devices, logs=LOGS if devices else ()),
                JOB,
                ("python3", "main.py"),
                name="ringleader-JOB",
                variables=("RINGLEADER_TOKEN",),
            )
            assert words[:2] == ("/bin/sh", "-c") and words[3] == "sh"
            title = f"# {name}, {'root, no devices' if user == 0 else 'user 1000, all devices'}"
            lines += [title, words[2], *words[4:], ""]
    golden("containers.engines", "\n".join(lines))


def test_golden_dry_run_on_two_hosts(make_facts, make_mpi, golden):
    agents, python, mpi = "/opt/venv/ringleader/agents", "/opt/venv/bin/python3", make_mpi(Family.OPENMPI5)
    facts = tuple(
        replace(make_facts(name, 1, cores=1), python=python, agent=f"{agents}/rank_agent.py")
        for name in ("node1", "node2")
    )
    plan = place(replace(JOB, np=2, hosts=tuple(one.host for one in facts)), facts)
    prepared = Prepared(
        job=JOB,
        environ={"PATH": "/opt/venv/bin:/usr/bin", "NCCL_DEBUG": "INFO", "PRTE_MCA_x": "an outer mpirun's"},
        mpi=mpi,
        plan=plan,
        ssh=None,
        job_id="JOB",
        directory="/tmp/ringleader-0/JOB",
        key="KEY",
        addresses=("10.0.0.9",),
        command=mpirun_command(
            plan=plan,
            mpi=mpi,
            job=JOB,
            agent=(python, "-I", "-S", f"{agents}/rank_agent.py"),
            hostfile="/tmp/ringleader-0/JOB/KEY/hostfile",
            session="/tmp/ringleader-0/JOB/session",
            backing="/dev/shm/ringleader-JOB",
        ),
        settings=JobSettings(),
        run_id="JOB",
    )
    engines = {"": engine("podman"), "node1": engine("podman"), "node2": engine("docker", 1000)}
    caller = {"PATH": "/home/alice/bin", "DOCKER_HOST": "unix:///run/docker.sock"}
    prepared = contained(prepared, engines, caller, ("/usr/bin/ssh", "-F", "/tmp/r.x/config"))
    command, launch = prepared.command, prepared.container
    assert launch is not None
    environment = launch.client_environment({"RINGLEADER_TOKEN": "secret"})
    assert environment["PATH"] == "/home/alice/bin" and environment["NCCL_DEBUG"] == "INFO"
    text = dry_run_text(
        job=JOB,
        plan=plan,
        mpi=mpi,
        command=command,
        environment={},
        ranks=(),
        containers=launch.order["hosts"],
    )
    assert "secret" not in text
    golden("dry_run.containers", text)


def test_what_is_mounted():
    found = mounts("/tmp", ("/a:/b:ro", "/c:/e:ro", "/c", "/d:/b"))
    assert found == (("/tmp", "/tmp", ""), ("/d", "/b", ""), ("/c", "/e", "ro"), ("/c", "/c", ""))
    assert mounts("/", ()) == (("/tmp", "/tmp", ""),)


def test_what_is_wrong_with_options():
    for options, said in (
        ({"container_mounts": ("/a:/b",)}, "--container-mount: requires --container"),
        ({"container_engine": "docker"}, "--container-engine: requires --container"),
        ({"container": "-v"}, "--container: '-v' is not an image"),
        ({"container": "a", "container_mounts": ("/a:b",)}, "--container-mount: '/a:b' is not a mount"),
        (
            {"container": "a", "container_mounts": ("/a:/b:rx",)},
            "--container-mount: '/a:/b:rx' is not a mount",
        ),
        ({"container": "a", "workdir": "/a,b"}, "--workdir: /a,b has a comma"),
        ({"container": "a.sif", "workdir": "/a:b"}, "--workdir: /a:b has a colon"),
        *(
            ({"container": "a", "container_mounts": (word,), "workdir": "/w/d"}, f"{word!r} replaces {what}")
            for word, what in (
                ("/scratch:/tmp", "/tmp, the job's files"),
                ("/tmp:/tmp:ro", "/tmp, the job's files"),
                ("/d:/x/../w/d", "/w/d, the ranks' directory"),
                ("/", "/, the image"),
            )
        ),
        (
            {"container": "a", "warm": True, "max_restarts": 1},
            "--container: cannot be used with elastic jobs",
        ),
        ({"container": "a", "container_engine": "lxc"}, "--container-engine: 'lxc' is unknown"),
    ):
        found = [str(fault) for fault in faults_of(Job(command=("a",), **options))]
        assert len(found) == 1 and said in found[0]


USUAL = "user 1000 1000 44\nmachine x86_64\n"
"""What every host says."""


def engine_found(said):
    marked = "\n".join(f"ringleader-container {line}" for line in said.splitlines())
    return engine_of(f"a greeting\n{marked}", Job(command=("a",), container=IMAGE, workdir="/w"))


def test_why_a_host_starts_no_container():
    for said, fault in (
        ("", "there is no podman or docker on PATH"),
        ("nowhere\nengine 0 /b/podman i amd64", "the working directory /w does not exist"),
        # podman 4.3.1 and docker/cli 28: cli/command/inspect, client/errors.go
        ("engine 125 /b/podman Error: inspecting object: a: image not known", f"podman has no image {IMAGE}"),
        (
            "engine 1 /b/docker permission denied while trying to connect to the Docker daemon socket",
            "this user may not use docker: permission denied while",
        ),
        (
            "engine 1 /b/docker Cannot connect to the Docker daemon at unix:///x. Is it running?",
            "docker does not work: Cannot connect",
        ),
        ("engine 0 /b/podman ringleader-image i arm64", f"image {IMAGE} is for arm64, this machine is amd64"),
        ("device nvidia\nengine 0 /b/podman i amd64", "podman cannot give its GPUs to containers"),
        ("engine 1 /b/apptainer", "apptainer has no image"),
        ("user\nengine 0 /b/podman", "its shell gave no usable answer"),
    ):
        with pytest.raises(ProbeError, match=re.escape(fault)):
            engine_found(USUAL + said)


PODMAN = """\
#!/bin/sh
echo 'time="x" level=warning msg="a cgroup"' >&2
machine=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
printf '%s\\n' "$4" | sed "s/{{.Id}} {{.Architecture}}/12 $machine/"
echo 'Emulate Docker CLI using podman.' >&2
"""
"""podman-docker and podman without root warn on standard error (podman 4.3.1, cmd/podman)."""


def here(tmp_path, **more):
    job = replace(JOB, workdir=str(tmp_path), container_mounts=(), **more)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    return ContainerQuery(job=job, question={}, ssh=None, remote=(), seconds=60.0, environ=environ)


@pytest.mark.process
def test_what_an_engine_warns_of_is_not_the_image(tmp_path):
    program, log = tmp_path / "podman", tmp_path / "kern log"
    program.write_text(PODMAN)
    program.chmod(0o755)
    log.touch()
    found = here(tmp_path, kernel_log=str(log)).engine(HERE)
    assert (found.engine, found.image_id, found.logs) == (str(program), "12", (str(log),))
    assert here(tmp_path, kernel_log=f"{tmp_path}/none").engine(HERE).logs == ()


@pytest.mark.process
def test_images_that_are_files_are_known_by_their_content(tmp_path):
    program, image = tmp_path / "apptainer", tmp_path / "train.sif"
    program.touch()
    program.chmod(0o755)
    found = []
    for content in ("one build", "two build", "two build"):
        image.write_text(content)
        found.append(here(tmp_path, container=str(image)).engine(HERE).image_id)
    assert found[0] != found[1] == found[2]


@pytest.mark.process
@pytest.mark.parametrize(("program", "code"), [("kill -9 $$", 137), ("exit 7", 7)])
def test_a_containers_exit_code_says_how_its_program_ended(program, code):
    words = (sys.executable, "-I", "-S", container_main.__file__, "/bin/sh", "-c", program)
    assert subprocess.run(words, check=False).returncode == code


def test_what_images_lack_and_where_they_differ():
    query = ContainerQuery(
        job=JOB, question={}, ssh=None, remote=(Host(name="h2"), Host(name="h3")), seconds=1.0, environ={}
    )
    names = ("h1", "h2", "h3", HERE.name)
    query.engines.update({name: engine("podman", image_id=f"sha256:{name}") for name in names})
    query.engines["h3"] = engine("podman", image_id="sha256:h2")
    mpi, asked = {"family": "openmpi5", "version": "5.0.8", "mpirun": "/m"}, {"python": ["/py", "3.11"]}
    answers = {
        Host(name="h1"): asked | {"identity": "another", "image": {"mpi": mpi}},
        Host(name="h2"): asked | {"identity": "b", "image": {"mpi": {"what": "none"}, "missing": ["torch"]}},
        Host(name="h3"): asked | {"identity": "c"},  # no Ringleader: that is reported elsewhere
        HERE: asked | {"identity": "d", "image": {"mpi": mpi}},
    }
    found = [str(fault).partition("\n")[0] for fault in image_faults(query, answers, "d")]
    assert found == [
        f"host h1: {IMAGE} is another image (h1) than on h2 (h2)",
        "host h1: podman does not share this machine's network and names with containers",
        f"host h2: image {IMAGE} has no torch",
        f"host h2: image {IMAGE} has no MPI that can be used: none",
        f"this machine: {IMAGE} is another image (this machine) than on h2 (h2)",
    ]


def test_an_mpis_ssh_is_put_into_the_hosts_container():
    for words, found in (
        # What Open MPI 5 gives its agent: the host, and one text for the shell there.
        (("h2", "prted  --x 'a b'"), ("ssh", "h2", "podman run sh -c 'prted  --x '\"'\"'a b'\"'\"''")),
        # Hydra: options, the host, and words for the shell.
        (
            ("-x", "h2", '"/usr/bin/proxy"', "-n"),
            ("ssh", "-x", "h2", "podman run sh -c '\"/usr/bin/proxy\" -n'"),
        ),
        (("h9", "prted"), ()),
        (("-oProxyCommand=touch /x", "h2", "prted"), ()),
        ((), ()),
    ):
        assert ssh_relay.command(("ssh",), {"h2": "podman run sh -c"}, words) == found


def test_the_engine_that_has_the_image_is_taken():
    said = USUAL + "device infiniband\nengine 125 /usr/bin/podman Error: image not known\n"
    said += "engine 0 /usr/bin/docker Emulate Docker CLI. ringleader-image sha256:12 amd64 level=warning"
    found = engine_found(f"log /dev/kmsg\n{said}")
    assert found.name == "docker" and found.image_id == "sha256:12"
    assert found.user == (1000, 1000) and found.groups == (44,) and found.devices == {"infiniband"}
    assert found.logs == ("/dev/kmsg",)
