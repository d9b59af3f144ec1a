"""A job's ssh keys: the launcher's own, and the workers' host key that the launcher knows them by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringleader.errors import Fault, RequestError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization import SSHPrivateKeyTypes

TYPES = ("ed25519", "ecdsa", "rsa")
RSA_BITS = 3072


def generate(key_type: str, hosts: Sequence[str]) -> dict[str, bytes]:
    """Draw new keys and return a Secret's data: name → content.

    ``hosts``: patterns of the names of the workers, on whatever port. Without any there is no host key: the
    one pair is all that the reference's layout has. RequestError for an unknown type.
    """
    private, public = _pair(key_type)
    found = {"ssh-privatekey": private, "ssh-publickey": public}
    if hosts:
        host_private, host_public = _pair(key_type)
        found |= {
            "ssh-hostkey": host_private,
            "ssh-hostkey-public": host_public,
            "ssh-known-hosts": known_hosts_line(hosts, host_public),
        }
    return found


def known_hosts_line(hosts: Sequence[str], public: bytes) -> bytes:
    """Return a line of known_hosts for names on any port: ssh looks for ``[name]:port`` unless that is 22."""
    patterns = [form for host in hosts for form in (host, f"[{host}]:*")]
    return ",".join(patterns).encode() + b" " + public


def _pair(key_type: str) -> tuple[bytes, bytes]:
    """Return a private key in OpenSSH's format and its line for authorized_keys, each with its line's end.

    RSA keys are written as PEM: what is older than OpenSSH's own format is why one asks for RSA.
    """
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = _draw(key_type)
    form = PrivateFormat.TraditionalOpenSSL if key_type == "rsa" else PrivateFormat.OpenSSH
    private = key.private_bytes(Encoding.PEM, form, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return private, public + b"\n"


def _draw(key_type: str) -> SSHPrivateKeyTypes:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if key_type == "ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    if key_type == "ecdsa":
        return ec.generate_private_key(ec.SECP256R1())
    if key_type == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
    what = f"there are no ssh keys of type {key_type!r}"
    raise RequestError(Fault(where="ssh key type", what=what, hint=f"one of: {', '.join(TYPES)}"))
