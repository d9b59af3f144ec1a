"""Look at every host of a job before anything is started, all at once; explain each that cannot take part."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringleader.agents import hardware, host_facts_script
from ringleader.errors import Fault, ProbeError, RequestError
from ringleader.launch.host_probe.host_answer import (
    HostReport,
    Question,
    interpreted_script,
    question_of,
    report_of,
    script_of,
    some_names,
)
from ringleader.launch.host_probe.unusable_hosts import faults_of, platform_faults
from ringleader.plan.host_list import is_loopback
from ringleader.plan.job import Host, Job, Mpi
from ringleader.render.hostfile import bare_name
from ringleader.value_class import dataclass

if TYPE_CHECKING:
    from ringleader.launch.ssh.connections import SshConnections
    from ringleader.render.container_command import ContainerHost

AGENT = Path(host_facts_script.__file__).with_name("rank_agent.py")


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What was learned, and the open connections it was learned over."""

    facts: tuple[HostReport, ...]
    """All that each host said, in the user's order; one, this machine, where no hosts were given."""
    ssh: SshConnections | None
    """Connections to the remote hosts, for the launch to use and then to close; ``None``: none is remote."""
    engines: Mapping[str, ContainerHost] | None = None
    """Host → what starts containers there; this machine, with ranks or without, is ``""``."""
    mpi: Mpi | None = None
    """The image's."""
    path: str = ""
    """PATH in the image."""


def probe(
    job: Job,
    *,
    environ: Mapping[str, str],
    progress: Callable[[str], None],
    mpi: Mpi | None = None,
    ssh_base: Path | None = None,
    stop: int | None = None,
    ssh: SshConnections | None = None,
) -> Probe:
    """Ask every host of the job, this machine directly and the others over ssh, in parallel.

    ``mpi``: what every host must have; ``None``: not checked. ``progress`` gets lines such as ``3 of 4
    hosts reached, waiting for h3``. ``ssh_base``: where sockets go (see ``SshConnections``). ``stop``: a
    descriptor that becomes readable when the caller wants to stop; KeyboardInterrupt is raised then. Raises
    ProbeError with the faults of all hosts at once; then, and on any other exception, every connection is
    closed. ``ssh``: connections that are the caller's and stay so, which know the hosts already.
    """
    if here_faults := platform_faults({"this machine": sys.platform}):
        raise ProbeError(here_faults)
    job = replace(job, workdir=str(Path(job.workdir or ".").absolute()))
    hosts = job.hosts or (Host(name="localhost"),)
    here = own_names(socket.gethostname(), host_facts_script.interfaces())
    remote = reached_by_ssh(job, here)
    question = question_of(job, environ, job.python or sys.executable)
    if job.container is not None:
        question = remote_question(question, job, hosts, here, None)
        return _probe_images(job, hosts, remote, question, environ, progress, stop=stop, ssh_base=ssh_base)
    if not remote:
        ours = local_answer(job, question, environ, takes_ranks=True)
        _check_request(job, ours)
        return _judge(job, hosts, dict.fromkeys(hosts, ours), ours)
    # Only jobs that leave this machine pay for it.
    from concurrent.futures import ThreadPoolExecutor

    from ringleader.launch.host_probe.remote_hosts import ANSWER_SECONDS, SshQuery, ask_all
    from ringleader.launch.ssh.connections import SshConnections

    question = remote_question(question, job, hosts, here, mpi)
    given = ssh
    if ssh is None:
        patient = replace(job.ssh, connect_timeout=job.ssh.connect_timeout * job.patience)
        ssh = SshConnections(patient, hosts, environ=environ, base=ssh_base)
    python, sender = job.python or sys.executable, None
    if job.code is not None:
        from ringleader.launch.host_probe.code_sync import CodeSender

        sender = CodeSender(job.code, job, ssh, python=python, environ=environ)
    query = SshQuery(
        ssh=ssh,
        question=question,
        python=python,
        seconds=_patience_with(job, ANSWER_SECONDS),
        shared=given is not None,
        bring=None if sender is None else sender.bring,
    )
    try:
        with contextlib.closing(sender or contextlib.ExitStack()), ThreadPoolExecutor(max_workers=1) as pool:
            takes_ranks = len(remote) < len(job.hosts)
            here_too = pool.submit(local_answer, job, question, environ, takes_ranks=takes_ranks)
            sending = str if sender is None else sender.progress
            answers, silent = ask_all(
                query.ask, remote, progress, give_up=query.give_up, stop=stop, sending=sending
            )
            ours = here_too.result()
        elsewhere = {host: answer["platform"] for host, answer in answers.items() if "platform" in answer}
        faults = [*silent, *platform_faults({f"host {host.name}": name for host, name in elsewhere.items()})]
        answers = {host: answer for host, answer in answers.items() if host not in elsewhere}
        answers |= {host: ours for host in hosts if host not in remote}
        return _judge(job, hosts, answers, ours, ssh=ssh, faults=faults)
    except BaseException:
        if given is None:
            ssh.close()
        raise


def _patience_with(job: Job, answer: float) -> float:
    """Return the seconds after which a host is given up; attempts are a second apart."""
    return (2 * job.ssh.connect_timeout + answer) * job.patience + job.ssh.attempts - 1


def _probe_images(
    job: Job,
    hosts: Sequence[Host],
    remote: tuple[Host, ...],
    question: Question,
    environ: Mapping[str, str],
    progress: Callable[[str], None],
    *,
    stop: int | None,
    ssh_base: Path | None,
) -> Probe:
    """Do what ``probe`` does in containers; ``question``: what hosts would be asked without."""
    from ringleader.launch.host_probe import container_probe
    from ringleader.launch.host_probe.remote_hosts import ANSWER_SECONDS, SshQuery, ask_all
    from ringleader.launch.ssh.connections import SshConnections

    asked = {name: question[name] for name in ("agent", "names", "script", "workdir") if name in question}
    ours = host_facts_script.answer(asked, environ)
    seconds, ssh = _patience_with(job, ANSWER_SECONDS), None
    if remote:
        patient = replace(job.ssh, connect_timeout=job.ssh.connect_timeout * job.patience)
        ssh = SshConnections(patient, hosts, environ=environ, base=ssh_base)
    try:
        query = container_probe.ContainerQuery(
            job=job,
            question=container_probe.image_question(question, job),
            ssh=None if ssh is None else SshQuery(ssh=ssh, question={}, python="sh", seconds=seconds),
            remote=remote,
            seconds=seconds,
            environ=environ,
        )
        asked_too = (container_probe.HERE,) if len(remote) == len(hosts) else ()
        answers, faults = ask_all(query.ask, (*hosts, *asked_too), progress, give_up=query.give_up, stop=stop)
        faults += container_probe.image_faults(query, answers, ours["identity"])
        answers.pop(container_probe.HERE, None)
        first = next(iter(answers.values()), None)
        if first is not None:
            ours["python"] = first["python"]  # an image need not have the launcher's
        probed = _judge(job, hosts, answers, ours, ssh=ssh, faults=faults)
        assert first is not None
        mpi, path = container_probe.mpi_of(first), first["image"]["path"]
        return replace(probed, engines=query.engines, mpi=mpi, path=path)
    except BaseException:
        if ssh is not None:
            ssh.close()
        raise


def own_names(hostname: str, interfaces: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return every name and address that is this machine for certain, without asking a resolver."""
    addresses = [address for found in interfaces.values() for address in found]
    return frozenset(("localhost", "::1", hostname, hostname.partition(".")[0], *addresses))


def is_this_machine(name: str, here: frozenset[str]) -> bool:
    """Whether a host of the job is the machine we run on; one given with a user (``alice@h1``) never is."""
    return name in here or (name.startswith("127.") and name.replace(".", "").isdigit())


def reached_by_ssh(job: Job, here: frozenset[str]) -> tuple[Host, ...]:
    """Return the hosts of a job that are reached over ssh; ``here``: this machine's own names.

    This machine is not, unless an ssh port or key is given that can be meant for nobody else: a loopback
    address with a port is how a container or a tunnel is reached.
    """
    others = tuple(host for host in job.hosts if not is_this_machine(host.name, here))
    if job.ssh.port is None and job.ssh.identity is None:
        return others
    away = tuple(host for host in job.hosts if host in others or is_loopback(host.name))
    return away or job.hosts


def remote_question(
    question: Question, job: Job, hosts: Sequence[Host], here: frozenset[str], mpi: Mpi | None
) -> Question:
    """Return what hosts are asked where more than this machine takes part."""
    ours = socket.gethostname()
    names = [ours if is_this_machine(host.name, here) else bare_name(host.name) for host in hosts]
    asked = {**question, "agent": str(AGENT), "names": sorted({ours, *some_names(names)})}
    if job.transport_settings and len(hosts) > 1:
        asked["facts"] = True
    if (script := script_of(job)) is not None:
        asked["script"] = script
    return asked if mpi is None else {**asked, "mpirun": mpi.mpirun, "embedded": mpi.embedded}


def local_answer(
    job: Job, question: Question, environ: Mapping[str, str], *, takes_ranks: bool
) -> dict[str, Any]:
    """Return this machine's answer, in the name of the interpreter that is to run rank agents here.

    With ``job.python`` and no ranks here nothing of that path can be said: its version is empty. Raises
    RequestError where it has to be an interpreter and is none.
    """
    answer: dict[str, Any] = host_facts_script.answer(question, environ)
    if job.python is not None:
        code = "import platform; print(platform.python_version())"
        patience = hardware.Patience(job.patience)
        argv = [job.python, "-I", "-S", "-c", code]
        version = hardware.output(argv, patience).strip() if takes_ranks else ""
        if takes_ranks and not version[:1].isdigit():
            what = "did not answer in time" if patience.unread else "is not a Python interpreter"
            hint = "give the full path of one"
            raise RequestError(f"{job.python} {what} on this machine", where="--python", hint=hint)
        answer["python"] = [job.python, version]
    return answer


def _check_request(job: Job, ours: Mapping[str, Any]) -> None:
    """Raise RequestError for what is wrong with the request on the only machine of the job."""
    program = job.command[0] if job.command else ""
    if not ours["workdir"]:
        raise RequestError(f"there is no directory {job.workdir}", where="--workdir")
    if ours.get("program") == "":
        what, hint = f"there is no program {program}", "check the spelling, or give its full path"
    elif ours.get("unstartable"):
        what = f"{program} cannot be started: {ours['unstartable']}"
        hint = f"correct that line, or name the interpreter: python {program}"
    elif ours.get("unreadable"):
        what = f"the script {interpreted_script(job.command)} {ours['unreadable']}"
        place = job.workdir if job.code is None else f"{job.code.source}, without what .gitignore names"
        hint = f"paths are taken from {place}; see --workdir"
    else:
        return
    raise RequestError(what, where="COMMAND", hint=hint)


def _judge(
    job: Job,
    hosts: Sequence[Host],
    answers: Mapping[Host, Mapping[str, Any]],
    ours: Mapping[str, Any],
    *,
    ssh: SshConnections | None = None,
    faults: Sequence[Fault] = (),
) -> Probe:
    """Put the answers together, or raise ProbeError with everything that is wrong."""
    here: str = ours["identity"]
    reports = tuple(report_of(host, answers[host], local_identity=here) for host in hosts if host in answers)
    local = report_of(Host(name="localhost"), ours, local_identity=here)
    found = (*faults, *faults_of(job, reports, local))
    if found:
        raise ProbeError(found)
    return Probe(facts=reports, ssh=ssh)
