"""The configuration files that a lab writes: hostfile, ssh, sshd, /etc/hosts. Pure."""

from __future__ import annotations

from ringleader.lab.spec import LabSpec

SHARED_TMP = "/tmp"
OWN_TMP = "/var/tmp"


def hostfile(spec: LabSpec) -> str:
    """Return Open MPI's hostfile."""
    return "".join(f"{name} slots={spec.slots}\n" for name in spec.host_names)


def ssh_config(spec: LabSpec, directory: str) -> str:
    """Return the ssh client's configuration: each name knows its address, port and keys; nothing is asked."""
    pairs = [(name, spec.address(number)) for number, name in enumerate(spec.host_names, 1)]
    blocks = [f"Host {name} {address}\n    HostName {address}\n" for name, address in pairs]
    common = f"""\
Host *
    Port {spec.ssh_port}
    IdentityFile "{directory}/id"
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile "{directory}/known_hosts"
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    PasswordAuthentication no
    KbdInteractiveAuthentication no
    BatchMode yes
    CheckHostIP no
"""
    return "\n".join([*blocks, common])


def session_variables(spec: LabSpec, *, cores: int) -> dict[str, str]:
    """Return what a host's sessions have in their environment besides PATH.

    The hosts share this machine's ``cores``. Each of them believes that it has them all, so an MPI that spins
    while it waits would not see that it takes the cores from the ranks it waits for.
    """
    variables = {"RINGLEADER_LAB": spec.name}
    if not (spec.private_tmp or spec.tree or spec.kernel):
        variables["TMPDIR"] = OWN_TMP
    if spec.kernel or spec.hosts * spec.slots > cores:
        variables["OMPI_MCA_mpi_yield_when_idle"] = "1"
    return variables


def sshd_config(
    spec: LabSpec,
    number: int,
    directory: str,
    *,
    path: str,
    cores: int,
    use_pam: bool,
    variables: tuple[tuple[str, str], ...] = (),
) -> str:
    """Return the configuration of one host's sshd; ``path`` is the PATH that sessions get.

    SHLVL keeps bash from reading ``~/.bashrc`` for a command that comes over ssh: what is in there may take
    seconds, replaces PATH, or waits for a lock that a killed host left behind.
    """
    own = f"{directory}/h{number}"
    session = {**dict(variables), "PATH": path, "SHLVL": "1", **session_variables(spec, cores=cores)}
    words = " ".join(f'"{name}={value}"' for name, value in session.items())
    return f"""\
Port {spec.ssh_port}
ListenAddress {spec.address(number)}
HostKey "{own}/host_key"
AuthorizedKeysFile "{directory}/authorized_keys"
PidFile none
UsePAM {"yes" if use_pam else "no"}
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
PrintMotd no
PrintLastLog no
MaxStartups 200:30:400
MaxSessions 200
Subsystem sftp internal-sftp
SetEnv {words}
"""


def hosts_on_host(spec: LabSpec, head_names: tuple[str, ...]) -> str:
    """Return ``/etc/hosts`` as every host of the lab sees it; ``head_names`` are the machine's own names."""
    loopback = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
    return loopback + hosts_on_head(spec, head_names)


def hosts_on_head(spec: LabSpec, missing_names: tuple[str, ...]) -> str:
    """Return the lines for the machine's own ``/etc/hosts``, with those of its names that nothing knows."""
    lines = [f"{spec.address(number)} {name}" for number, name in enumerate(spec.host_names, 1)]
    lines.append(" ".join([spec.head_address, *missing_names, f"{spec.name}-head"]))
    return "\n".join(lines) + "\n"
