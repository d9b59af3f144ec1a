"""Probe the hosts of a job with ``--container``: a host's engine and image, then the image's own Python.

The second question is that of every probe (``agents/host_facts_script``), asked in a container with the
mounts and devices that ranks will have; so what an image lacks is named before anything is started.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ringleader.agents.kernel_log import PLACES
from ringleader.errors import Fault, ProbeError
from ringleader.launch.host_probe.host_answer import Question
from ringleader.launch.host_probe.remote_hosts import SshQuery, program, read_answer
from ringleader.launch.ssh.connections import TIMED_OUT, Reply
from ringleader.launch.ssh.failure_messages import explain
from ringleader.plan.containers import engines_for
from ringleader.plan.job import Family, Host, Job, Mpi
from ringleader.render.container_command import ContainerHost, container_command, remove_command

SCRIPT = """\
say() { echo "ringleader-container $*"; }
format="ringleader-image {{.Id}} {{.Architecture}}"
beginning() { head -c 4096 "$1" 2>/dev/null | cksum | cut -d" " -f1; }
main() {
  image=$1 directory=$2
  for log in "$3" "$4"; do
    { [ -f "$log" ] || [ -c "$log" ]; } && (: <"$log") 2>/dev/null && say log "$log"
  done
  shift 4
  say user $(id -u) $(id -g) $(id -G)
  say machine $(uname -m)
  [ -d "$directory" ] || say nowhere
  [ -d /dev/infiniband ] && say device infiniband
  [ -e /dev/nvidiactl ] && say device nvidia
  [ -e /dev/kfd ] && say device amd
  ls /etc/cdi/*nvidia* /var/run/cdi/*nvidia* 2>/dev/null | grep -q . && say device cdi
  for engine; do
    path=$(command -v "$engine") || continue
    case ${engine##*/} in
      podman|docker) said=$("$path" image inspect --format "$format" "$image" 2>&1);;
      *) said=$(if [ -e "$image" ]; then echo ringleader-image $(stat -Lc %s "$image").$(beginning "$image")
        else [ "$engine" = enroot ] && "$path" list | grep -xF -- "$image"; fi);;
    esac
    say engine $? "$path" $said
  done
}
main "$@" </dev/null
"""
"""What a host's shell is asked, which may have no Python. Arguments: image, directory, two logs of the kernel
(or one and an empty word), engines. The beginning of an image's file says which build it is."""
HERE = Host(name="this machine")
"""Probed besides where it has no ranks: mpirun is in a container there."""
REMOVE_SECONDS = 5.0
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""``uname -m`` → what images call it, where that differs."""
_UNKNOWN = re.compile(r"not known|[Nn]o such (image|object|file)|^$")


@dataclass(frozen=True, kw_only=True)
class ContainerQuery:
    """How the hosts of one job are probed, and which engines they turned out to have."""

    job: Job
    """With an absolute working directory."""
    question: Question
    ssh: SshQuery | None
    """For the remote hosts; ``None``: there are none."""
    remote: tuple[Host, ...]
    seconds: float
    """What each question may take."""
    environ: Mapping[str, str]
    engines: dict[str, ContainerHost] = field(default_factory=dict)
    """Host → its engine; this machine is ``""``."""
    running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    """Engines of this machine that are being asked."""

    def ask(self, host: Host) -> dict[str, Any] | Fault:
        """Return the answer of a host's image, or why there is none."""
        try:
            engine = self.engine(host)
            python = self.job.interpreter("")
            name, words = f"ringleader-probe-{uuid.uuid4().hex[:12]}", (python, "-I", "-S", "-")
            command = container_command(engine, self.job, words, name=name, reads=True)
            reply = self._reply(host, command, program(self.question))
            if reply.exit_code < 0 and (remove := remove_command(engine, name)):
                self._reply(host, remove, b"", REMOVE_SECONDS)
            answer = read_answer(reply.stdout)
            if answer is None or "too_old" in answer:
                raise self._unanswered(engine, python, reply, answer)
            return answer
        except ProbeError as error:
            return replace(error.faults[0], where=_where(host))
        except OSError as error:
            return Fault(where=_where(host), what=f"it cannot be probed: {error.strerror or error}")

    def engine(self, host: Host) -> ContainerHost:
        """Return a host's engine that has the image. Raises ProbeError where there is none."""
        wanted = engines_for(self.job.container or "", self.job.container_engine)
        words = ("/bin/sh", "-s", "--", self.job.container or "", self.job.workdir, *_logs(self.job), *wanted)
        reply = self._reply(host, words, SCRIPT.encode())
        if reply.exit_code == TIMED_OUT:
            what = f"{' or '.join(wanted)} did not answer within {self.seconds:g} s"
            raise ProbeError(what, hint="check whether the daemon is running")
        if reply.exit_code and self.ssh is not None and host in self.remote:
            raise ProbeError(explain(self.ssh.failure(host, reply)))
        found = engine_of(reply.stdout.decode(errors="replace"), self.job)
        self.engines[host.name] = found
        if host not in self.remote:
            self.engines[""] = found
        return found

    def _unanswered(
        self, engine: ContainerHost, python: str, reply: Reply, answer: Mapping[str, Any] | None
    ) -> ProbeError:
        """Return why an image's Python gave no answer."""
        image, hint = f"image {self.job.container}", "add it to the image, or name another: --python"
        lines = [line.strip() for line in reply.stderr.splitlines() if line.strip()]
        said = lines[-1][:300] if lines else f"exit code {reply.exit_code}"
        if answer is not None:
            return ProbeError(f"{image} has Python {answer['too_old']}, which is too old", hint=hint)
        if reply.exit_code == TIMED_OUT:
            what = f"{image} did not answer within {self.seconds:g} s, started by {engine.name}"
            return ProbeError(what, hint="try again; --start-timeout allows more time")
        if reply.exit_code in (126, 127):
            return ProbeError(f"{image} has no {python}: {said}", hint=hint)
        hint = "paths of --container-mount must exist on every host"
        return ProbeError(f"{engine.name} cannot start {image}: {said}", hint=hint)

    def give_up(self) -> None:
        """End what the threads wait for."""
        if self.ssh is not None:
            self.ssh.give_up()
        for process in tuple(self.running):
            _end(process)

    def _reply(self, host: Host, words: Sequence[str], text: bytes, seconds: float | None = None) -> Reply:
        seconds = self.seconds if seconds is None else seconds
        if self.ssh is not None and host in self.remote:
            return self.ssh.reply(host, words, text, seconds)
        # A session of its own has no terminal on which an engine could ask for a password.
        pipe, environ = subprocess.PIPE, dict(self.environ)
        process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=pipe, env=environ, start_new_session=True
        )
        self.running.add(process)
        with process:
            try:
                stdout, stderr = process.communicate(text, timeout=seconds)
            except subprocess.TimeoutExpired:
                _end(process)
                return Reply(exit_code=TIMED_OUT, stdout=b"", stderr="")
            finally:
                self.running.discard(process)
        return Reply(exit_code=process.returncode, stdout=stdout, stderr=stderr.decode(errors="replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # the engine's client is below a shell


def _where(host: Host) -> str:
    return host.name if host == HERE else f"host {host.name}"


def _logs(job: Job) -> tuple[str, ...]:
    return PLACES if job.kernel_log is None else (job.kernel_log, "")


def engine_of(said: str, job: Job) -> ContainerHost:
    """Read the answer of SCRIPT: the first engine that has the image. Raises ProbeError where none has it."""
    lines = [line.split() for line in said.splitlines() if line.startswith("ringleader-container ")]
    words = {line[1]: line[2:] for line in lines}
    tried = [line[2:] for line in lines if line[1] == "engine"]
    if "nowhere" in words:
        hint = "make it there with the script in it, use a shared file system, or name another: --workdir"
        raise ProbeError(f"the working directory {job.workdir} does not exist", hint=hint)
    if not tried:
        names = " or ".join(engines_for(job.container or "", job.container_engine))
        hint = f"install {names}, or name another engine: --container-engine"
        raise ProbeError(f"there is no {names} on PATH", hint=hint)
    user = words.get("user", ())
    if not words.get("machine") or len(user) < 2 or not all(number.isdecimal() for number in user):
        raise ProbeError("its shell gave no usable answer", hint="try there: id, uname -m")
    status, path, *rest = next((one for one in tried if one[0] == "0"), tried[0])
    name = path.rpartition("/")[2]
    if status != "0":
        raise _no_image(name, job.container or "", " ".join(rest))
    marked = rest[rest.index("ringleader-image") + 1 :] if "ringleader-image" in rest else ()
    image_id, architecture = (*marked, "", "")[:2]  # around it is what the engine warns of
    machine = MACHINES.get(words["machine"][0], words["machine"][0])
    if architecture not in ("", machine):
        what = f"image {job.container} is for {architecture}, this machine is {machine}"
        raise ProbeError(what, hint=f"build or pull the image for {machine}")
    devices = frozenset(line[2] for line in lines if line[1] == "device")
    if name == "podman" and "nvidia" in devices and "cdi" not in devices:
        what = "podman cannot give its GPUs to containers: no CDI specification"
        raise ProbeError(what, hint="nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
    owner, group, *groups = map(int, user)
    return ContainerHost(
        engine=path,
        user=(owner, group),
        groups=tuple(groups),
        devices=devices,
        image_id=image_id,
        logs=tuple(log for log in _logs(job) if f"ringleader-container log {log}" in said.splitlines()),
    )


def _no_image(engine: str, image: str, said: str) -> ProbeError:
    if _UNKNOWN.search(said):
        is_stored = engine in ("podman", "docker")
        hint = f"{engine} pull {image}, or build it there" if is_stored else "copy it to the same path"
        return ProbeError(f"{engine} has no image {image}", hint=hint)
    if re.search(r"permission denied|password", said, re.IGNORECASE):
        hint = "let this user start containers without a password: group docker, or podman without root"
        return ProbeError(f"this user may not use {engine}: {said[:300]}", hint=hint)
    return ProbeError(f"{engine} does not work: {said[:300]}", hint=f"try there: {engine} info")


# --- all hosts --------------------------------------------------------------------------------------------


def image_question(question: Question, job: Job) -> Question:
    """Return what an image is asked instead of a host: with its own Ringleader, MPI and PATH."""
    path = {"path": dict(job.env)["PATH"]} if "PATH" in dict(job.env) else {}
    kept = {name: value for name, value in question.items() if name != "path"}
    return {**kept, **path, "agent": "", "image": job.mpi or ""}


def image_faults(
    query: ContainerQuery, answers: Mapping[Host, Mapping[str, Any]], identity: str
) -> list[Fault]:
    """Return what is wrong with images besides what is wrong with hosts. ``identity``: this machine's.

    ``answers``: in the user's order; of two images the one that most hosts have is taken for the right one.
    """
    found, image = list[Fault](), query.job.container
    usual = dict[str, str]()  # by engine: identities of different ones cannot be compared
    for name in {query.engines[host.name].name for host in answers}:
        those = [one for host in answers if (one := query.engines[host.name]).name == name]
        usual[name] = Counter(one.image_id for one in those).most_common(1)[0][0]
    for host, answer in answers.items():
        has: Mapping[str, Any] = answer.get("image", {"mpi": {"mpirun": ""}})  # no Ringleader: not asked
        hint = f"add it to the image: {answer['python'][0]} -m pip install"
        faults = [(f"image {image} has no {name}", f"{hint} {name}") for name in has.get("missing", ())]
        if "mpirun" not in has["mpi"]:
            said = has["mpi"].get("what") or "its Ringleader did not answer"
            faults.append((f"image {image} has no MPI that can be used: {said}", has["mpi"].get("hint", "")))
        theirs = query.engines[host.name]
        if (most := usual[theirs.name]) != theirs.image_id:
            like = next(
                one.name
                for one in answers
                if (ours := query.engines[one.name]).name == theirs.name and ours.image_id == most
            )
            what = f"{image} is another image ({_short(theirs.image_id)}) than on {like} ({_short(most)})"
            faults.append((what, "copy or pull the same image to every host"))
        if host not in query.remote and answer["identity"] != identity:
            what = f"{theirs.name} does not share this machine's network and names with containers"
            faults.append((what, "use an engine of this machine (DOCKER_HOST), and not docker without root"))
        found += [Fault(where=_where(host), what=what, hint=hint) for what, hint in faults]
    return found


def _short(identity: str) -> str:
    return identity.removeprefix("sha256:")[:12]


def mpi_of(answer: Mapping[str, Any]) -> Mpi:
    """Return the MPI that an image's answer names."""
    values = dict(answer["image"]["mpi"])
    return Mpi(**values | {"family": Family(values["family"])})
