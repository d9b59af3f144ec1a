"""Jobs in containers of a real podman: here, and over a real sshd on two hosts with their own storage.

A docker daemon exists nowhere here: `docker` is podman behind a check of the options (docker/cli 28,
``cli/command/container/opts.go``), and docker's own client is only asked whether it can read the command.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests import podman
from tests.ssh import sshd
from tests.time_limits import patience

sys.path.insert(0, str(Path(__file__).parent))
import programs

from ringleader.plan.job import Job
from ringleader.render.container_command import ContainerHost, container_command

pytestmark = pytest.mark.mpi
GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/containers.md"
IMAGE = "registry.example/team/train:1"
"""The guide's."""
ON_LOOPBACK = ("--oversubscribe", "-x", "OMPI_MCA_btl_tcp_if_include=lo")
"""c1 and c2 share the machine's interfaces, on which labs come and go."""
WHERE = "print(open('/proc/self/cgroup').read().count('libpod') > 0, __import__('socket').gethostname())"


@dataclass
class Hosts:
    """What jobs run on."""

    here: Path
    """podman of the launching machine."""
    there: tuple[Path, ...] = ()
    """podman of each host."""
    config: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        return ("--container", IMAGE, *podman.mounts())

    def left(self) -> list[str]:
        return [name for one in (self.here, *self.there) for name in podman.names(one)]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Hosts:
    place = podman.make_podman(tmp_path_factory.mktemp("here") / "p")
    podman.add_image(place, IMAGE)
    if why := podman.works(place, IMAGE):
        pytest.skip(f"podman runs no container here: {why}")
    return Hosts(here=place)


@pytest.fixture(scope="module")
def hosts(machine: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two hosts, c1 and c2, each with its own host name, sshd, and podman's storage."""
    if sshd.SSHD is None:
        pytest.skip("sshd is not installed")
    base = tmp_path_factory.mktemp("hosts")
    key, blocks, known, running, there = sshd.make_key(base / "key"), {}, [], [], []
    usual = Path(shutil.which("podman") or "")
    try:
        for name in ("c1", "c2"):
            there.append(podman.make_podman(base / name))
            podman.copy_image(machine.here, there[-1], IMAGE)
            one = sshd.start(base / f"sshd-{name}", key, hostname=name, mounts=((there[-1], usual),))
            running.append(one)
            blocks[name] = {"Port": one.port, "IdentityFile": key, "HostKeyAlias": name}
            known.append(f"{name} {one.public_host_key}\n")
        (base / "known_hosts").write_text("".join(known))
        config = sshd.client_config(base / "config", blocks, base / "known_hosts")
        yield Hosts(here=machine.here, there=tuple(there), config=str(config))
    finally:
        for one in running:
            one.stop()


@pytest.fixture
def place(workplace, machine):
    """Return a workplace whose PATH has the machine's podman; no container may be left."""
    workplace.environ["PATH"] = f"{machine.here.parent}:{workplace.environ['PATH']}"
    yield workplace
    assert podman.names(machine.here) == []


def test_ranks_and_their_mpi_are_in_a_container(place, machine):
    done = place.run("run", "-n", "2", "--oversubscribe", *machine.options, "--", "python", "-c", WHERE)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(rb"True", done.stdout)) == [b"True"] * 2


@pytest.mark.long
@pytest.mark.parametrize("where", ["c1:1,c2:1", "localhost:1,c2:1"])
def test_ranks_of_several_hosts_exchange(place, hosts, some_mpi, where):
    words = ("-H", where, "--ssh-config", hosts.config, "--mpi", some_mpi, *ON_LOOPBACK)
    words += (f"--container-mount={some_mpi}",) if some_mpi.startswith("/") else ()
    # Debian's MPICH may hang in MPI_Finalize over TCP, without containers too.
    words += ("-x", "MPI4PY_RC_FINALIZE=0") if "mpich" in some_mpi else ()
    done = place.run("run", *words, *hosts.options, "--", "python", "-c", programs.ALLREDUCE)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(rb" [01] 2 3\n", done.stdout)) == 2
    assert gone(hosts) == []


def sleeping(place, hosts, *where: str):
    """Start two ranks that sleep; return the launcher once both are up."""
    words = ("run", *where, "--oversubscribe", "--grace", "2", *hosts.options)
    launcher = place.ringleader(*words, "--", "python", "-c", programs.IN_MPI)
    for _ in range(2):
        assert b"up" in launcher.stdout.readline(), launcher.communicate()
    return launcher


def gone(hosts) -> list[str]:
    """Wait until no container is left; return those that are after some seconds.

    An engine removes a container after its end, beside the job's; its client waits 20 s where nobody did.
    """
    end = patience(30)
    while (left := hosts.left()) and end > 0:
        signal.sigtimedwait((), 0.2)
        end -= 0.2
    return left


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_container_outlives_its_launcher(place, machine, number):
    launcher = sleeping(place, machine, "-n", "2")
    launcher.send_signal(number)
    launcher.wait(patience(20))
    assert gone(machine) == []


@pytest.mark.long
def test_a_container_whose_client_is_killed_is_named_and_removed(place, hosts):
    launcher = sleeping(place, hosts, "-H", "c1:1,c2:1", "--ssh-config", hosts.config)
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        words = entry.read_bytes().split(b"\0")
        if words[0] == str(hosts.there[1].parents[1] / "real").encode() and b"run" in words[:2]:
            os.kill(int(entry.parts[2]), signal.SIGKILL)
    _, said = launcher.communicate(timeout=patience(30))
    assert launcher.returncode == 3
    assert b"the MPI's daemon on c2 was ended" in said
    assert gone(hosts) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--container=localhost/none:1",), "podman has no image localhost/none:1"),
        (("--container-mount=/none:/none",), "podman cannot start image"),
        (("--python=/usr/bin/python3",), f"Ringleader is not installed in image {IMAGE}"),
        (("--", "no-program"), "the program no-program does not exist"),
    ],
)
def test_what_cannot_work_is_named_before_anything_is_started(place, machine, words, said):
    command = () if "--" in words else ("--", "true")
    done = place.run("run", "-n", "1", *machine.options, *words, *command)
    assert done.returncode == 3
    assert f"ringleader: host localhost: {said}" in done.stderr.decode()


# --- docker ------------------------------------------------------------------------------------------------


def test_dockers_own_client_can_read_the_command():
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("docker is not installed: apt-get install docker.io")
    devices = frozenset(("infiniband", "nvidia", "amd"))
    logs = ("/dev/kmsg", "/var/log/kern.log")
    host = ContainerHost(engine=docker, user=(1000, 1000), groups=(44,), devices=devices, logs=logs)
    job = Job(command=("a",), container=IMAGE, container_mounts=("/a:/b:ro",), workdir="/a b")
    words = container_command(host, job, ("true",), name="x", variables=("A",), reads=True)
    done = subprocess.run(
        words,
        env={**os.environ, "DOCKER_HOST": "unix:///nonexistent/docker.sock"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    # It asks the daemon after it has read its options.
    assert done.returncode == 125 and re.search("docker.sock|server OS", done.stderr), done.stderr


# --- the guide ---------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_commands_of_the_guide(place, hosts):
    blocks = re.findall(r"^```console\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line[2:]) for block in blocks for line in block.splitlines()]
    assert [words[1] for words in commands] == ["run", "run", "run", "doctor"]
    (place.tmp / "train.py").write_text(programs.ALLREDUCE)
    for words in commands:
        more = [*podman.mounts(), *(ON_LOOPBACK if words[1] == "run" else ())]
        more += ["--ssh-config", hosts.config] if "-H" in words else []
        at = words.index(IMAGE) + 1
        argv = [word.replace("node", "c") for word in (*words[1:at], *more, *words[at:])]
        done = place.run(*argv, cwd=place.tmp)
        assert done.returncode == 0 or words[1] == "doctor", done.stderr
        if "--dry-run" in words:
            assert b"# containers of other hosts" in done.stdout
        elif words[1] == "run":
            size = 4 if "-H" in words else 2
            assert len(re.findall(rf" \d {size} \d+\n".encode(), done.stdout)) == size
        else:
            assert b"c1, c2: " in done.stdout, (done.stdout, done.stderr)
    assert gone(hosts) == []
