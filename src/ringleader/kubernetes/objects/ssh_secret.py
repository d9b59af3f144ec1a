"""The Secret with a job's ssh keys: how they are drawn, and which of them lie where in which Pod.

Layout ``separate``, the default: the private key that opens the workers is in the launcher alone. A worker
has the public one (``authorized_keys``) and a host key of its own kind, which is called ``id_rsa`` there:
configurations of sshd that were written for the reference controller name it as their host key. Layout
``reference``: one key pair, the same three files in every Pod, as the reference mounts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringleader.errors import Fault, RequestError
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.annotations import (
    SSH_KEY_TYPE,
    SSH_LAYOUT,
    SSH_LAYOUT_REFERENCE,
)
from ringleader.kubernetes.mpijob.object_metadata import WORKER, Document, metadata
from ringleader.kubernetes.objects.exec_spawn import is_exec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization import SSHPrivateKeyTypes

    from ringleader.kubernetes.mpijob.model import MPIJob

PRIVATE_KEY = "ssh-privatekey"
PUBLIC_KEY = "ssh-publickey"
HOST_PRIVATE_KEY = "ssh-hostkey"
HOST_PUBLIC_KEY = "ssh-hostkey-public"
KNOWN_HOSTS = "ssh-known-hosts"
DRAWN_TOGETHER = ((PRIVATE_KEY, PUBLIC_KEY), (HOST_PRIVATE_KEY, HOST_PUBLIC_KEY, KNOWN_HOSTS))
"""Names of which each group is of one key."""

VOLUME = "ssh-auth"
ROOT_PATH = "/root/.ssh"
IDENTITY = "id_rsa"
"""File of a private key, whatever its type: ssh and sshd look into the file, not at its name."""
DEFAULT_KEY_TYPE = "ed25519"
TYPES = ("ed25519", "ecdsa", "rsa")
RSA_BITS = 3072
SSHD = ("/usr/sbin/sshd", "-De")


def secret(job: MPIJob) -> Document:
    """Return the Secret of a job without its data."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/ssh-auth",
        "metadata": metadata(job, object_names.ssh(job.metadata.name)),
    }


def key_type(job: MPIJob) -> str:
    """Return the type of a job's keys: ``ed25519``, ``ecdsa`` or ``rsa``."""
    return str(job.metadata.annotations.get(SSH_KEY_TYPE, DEFAULT_KEY_TYPE))


def known_as(job: MPIJob) -> tuple[str, ...]:
    """Return the patterns of the names that the workers' host key is known by; none: there is no such key."""
    if is_reference_layout(job):
        return ()
    return (f"{job.metadata.name}-worker-*",)


def keys(job: MPIJob) -> frozenset[str]:
    """Return the names of the data that a job's Secret must have."""
    if is_reference_layout(job):
        return frozenset(DRAWN_TOGETHER[0])
    return frozenset(name for names in DRAWN_TOGETHER for name in names)


def is_reference_layout(job: MPIJob) -> bool:
    """Say whether a job wants the reference controller's layout."""
    return job.metadata.annotations.get(SSH_LAYOUT) == SSH_LAYOUT_REFERENCE


def has_our_sshd(job: MPIJob) -> bool:
    """Say whether the workers run the sshd that we start for them, with the host key that we gave them."""
    worker = job.spec.mpi_replica_specs.worker
    if worker is None or is_exec(job) or is_reference_layout(job):
        return False
    first = worker.template["spec"]["containers"][0]
    command, args = first.get("command") or [], first.get("args") or []
    ours = sshd_args(job)
    # Ours is also one that was rendered before, with its own port.
    return (not command and not args) or (tuple(command) == SSHD and args[: len(ours)] == ours)


def sshd_args(job: MPIJob) -> list[str]:
    """Return the arguments of ``SSHD`` beyond those of the reference.

    The keys' folder is a mounted Secret, open to all, which sshd would refuse to read in its strict mode.
    """
    if is_reference_layout(job):
        return []
    return ["-h", f"{job.spec.ssh_auth_mount_path}/{IDENTITY}", "-o", "StrictModes=no"]


def files(job: MPIJob, role: str) -> Document:
    """Return the volume's source: which keys are which files in a launcher or a worker."""
    source: Document = {"secretName": object_names.ssh(job.metadata.name), "items": _items(job, role)}
    if job.spec.ssh_auth_mount_path == ROOT_PATH:
        # ssh refuses a private key of its own user that others may read. Elsewhere the user is not root, and
        # the kubelet gives files to root: they must be readable for others then.
        source["defaultMode"] = 0o600
    return {"secret": source}


def _items(job: MPIJob, role: str) -> list[Document]:
    private, public = PRIVATE_KEY, PUBLIC_KEY
    if role == WORKER and not is_reference_layout(job):
        private, public = HOST_PRIVATE_KEY, HOST_PUBLIC_KEY
    files = [(private, IDENTITY), (public, f"{IDENTITY}.pub"), (PUBLIC_KEY, "authorized_keys")]
    if role != WORKER and has_our_sshd(job):
        files.append((KNOWN_HOSTS, "known_hosts"))
    return [{"key": key, "path": path} for key, path in files]


def generate(kind: str, hosts: Sequence[str]) -> dict[str, bytes]:
    """Draw new keys and return a Secret's data: name → content.

    ``hosts``: patterns of the names of the workers, on whatever port. Without any there is no host key: the
    one pair is all that the reference's layout has. RequestError for an unknown type.
    """
    private, public = _pair(kind)
    found = {PRIVATE_KEY: private, PUBLIC_KEY: public}
    if hosts:
        own, public = _pair(kind)
        known = known_hosts_line(hosts, public)
        found |= {HOST_PRIVATE_KEY: own, HOST_PUBLIC_KEY: public, KNOWN_HOSTS: known}
    return found


def known_hosts_line(hosts: Sequence[str], public: bytes) -> bytes:
    """Return a line of known_hosts for names on any port: ssh looks for ``[name]:port`` unless that is 22."""
    patterns = [form for host in hosts for form in (host, f"[{host}]:*")]
    return ",".join(patterns).encode() + b" " + public


def _pair(kind: str) -> tuple[bytes, bytes]:
    """Return a private key in OpenSSH's format and its line for authorized_keys, each with its line's end.

    RSA keys are written as PEM: what is older than OpenSSH's own format is why one asks for RSA.
    """
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = _draw(kind)
    form = PrivateFormat.TraditionalOpenSSL if kind == "rsa" else PrivateFormat.OpenSSH
    private = key.private_bytes(Encoding.PEM, form, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return private, public + b"\n"


def _draw(kind: str) -> SSHPrivateKeyTypes:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if kind == "ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    if kind == "ecdsa":
        return ec.generate_private_key(ec.SECP256R1())
    if kind == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
    what = f"there are no ssh keys of type {kind!r}"
    raise RequestError(Fault(where="ssh key type", what=what, hint=f"one of: {', '.join(TYPES)}"))
