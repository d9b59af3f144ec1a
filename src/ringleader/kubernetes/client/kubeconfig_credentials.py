"""What a kubeconfig's cluster and user entries mean: address, trust, and the way to prove who we are."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ringleader.errors import Fault, RequestError, collected
from ringleader.kubernetes.client.credential_plugin import VERSIONS, CredentialPlugin, PluginSpec, command_of
from ringleader.kubernetes.client.credentials import Credentials, Identity, TokenFile, basic
from ringleader.kubernetes.client.kubeconfig_files import Chosen, Entry, text_of
from ringleader.kubernetes.client.proxy import proxy_of
from ringleader.kubernetes.client.tls import KeyPair, Trust
from ringleader.text_files import read_bytes


def credentials_of(chosen: Chosen, environ: Mapping[str, str]) -> Credentials:
    """Return the credentials of a kubeconfig's context. RequestError with all its faults at once."""
    faults: list[Fault] = []
    entry = chosen.cluster
    server = _text(entry, "server", faults)
    place = f"{entry.where} clusters[{entry.name}]"
    if not _is_url(server):
        faults.append(
            Fault(where=f"{place}.server", what=f"{server!r} is not a URL", hint="https://HOST:PORT")
        )
    authority = _content(entry, "certificate-authority", faults)
    is_blind = entry.value.get("insecure-skip-tls-verify") is True
    if authority and is_blind:
        what = "insecure-skip-tls-verify and a certificate authority exclude each other"
        faults.append(Fault(where=place, what=what))
    said = _text(entry, "proxy-url", faults)
    proxy = said or (proxy_of(server, environ) if _is_url(server) else "")
    if proxy and not _is_url(proxy):
        what = f"{proxy!r} is not an http:// or https:// URL, and other proxies are not known"
        faults.append(Fault(where=f"{place}.proxy-url" if said else "HTTPS_PROXY", what=what))
    found = Credentials(
        server=server,
        trust=Trust(authority=(authority or b"").decode(errors="replace"), is_blind=is_blind, where=place),
        server_name=_text(entry, "tls-server-name", faults),
        identity=_identity(chosen.user, entry, environ, faults),
        namespace=chosen.namespace or "default",
        context=chosen.context,
        extra_headers=_impersonation(chosen.user, faults),
        proxy=proxy,
    )
    if faults:
        raise RequestError(faults)
    if found.trust.authority or found.identity.certificate is not None:
        _ = found.tls  # What is not a certificate is told now, not with the first request.
    return found


def _identity(
    entry: Entry | None, cluster: Entry, environ: Mapping[str, str], faults: list[Fault]
) -> Identity:
    """Read how a user entry proves who we are; what is wrong goes into ``faults``."""
    if entry is None:
        return Identity()
    pair = _pair(entry, faults)
    if path := _text(entry, "tokenFile", faults):
        full = entry.file.parent / path
        if not full.is_file():
            faults.append(
                Fault(where=f"{entry.where} users[{entry.name}].tokenFile", what=f"{full}: no such file")
            )
        return TokenFile(full, certificate=pair)
    if token := _text(entry, "token", faults):
        return Identity({"Authorization": f"Bearer {token}"}, pair)
    if name := _text(entry, "username", faults):
        return Identity(basic(name, _text(entry, "password", faults)), pair)
    if entry.value.get("exec") is not None:
        spec = _exec(entry, cluster, environ, faults)
        return Identity() if spec is None else CredentialPlugin(spec)
    if entry.value.get("auth-provider") is not None:
        what = "auth-provider is not supported"
        hint = "use an exec plugin such as kubelogin or gke-gcloud-auth-plugin"
        faults.append(Fault(where=f"{entry.where} users[{entry.name}].auth-provider", what=what, hint=hint))
    return Identity(certificate=pair)


def _impersonation(entry: Entry | None, faults: list[Fault]) -> dict[str, str]:
    """Return the headers that ask to act as somebody else (``as``, ``as-uid``)."""
    if entry is None:
        return {}
    for name in ("as-groups", "as-user-extra"):
        if entry.value.get(name):
            place = f"{entry.where} users[{entry.name}].{name}"
            faults.append(Fault(where=place, what="is not supported: only as and as-uid are"))
    words = {
        "Impersonate-User": _text(entry, "as", faults),
        "Impersonate-Uid": _text(entry, "as-uid", faults),
    }
    return {header: word for header, word in words.items() if word}


def _is_url(text: str) -> bool:
    """True for an http:// or https:// URL with a host."""
    try:
        parts = urlsplit(text)
        # Asking for the port reads it; a host that no name server could be asked for is none.
        host = (parts.hostname or "").encode("idna")
        return parts.scheme in ("http", "https") and host != b"" and parts.port != 0
    except ValueError:
        return False


def _pair(entry: Entry, faults: list[Fault]) -> KeyPair | None:
    certificate = _content(entry, "client-certificate", faults)
    key = _content(entry, "client-key", faults)
    if (certificate is None) != (key is None):
        missing = "client-certificate" if certificate is None else "client-key"
        faults.append(Fault(where=f"{entry.where} users[{entry.name}]", what=f"{missing} is missing"))
    return KeyPair(certificate=certificate, key=key) if certificate and key else None


def _content(entry: Entry, key: str, faults: list[Fault]) -> bytes | None:
    """Return what ``key-data`` holds, or the file that ``key`` names; ``None`` where neither is there."""
    if data := _text(entry, f"{key}-data", faults):
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            faults.append(Fault(where=f"{entry.where} {entry.name}.{key}-data", what="is not base64"))
            return b""
    if path := _text(entry, key, faults):
        try:
            return read_bytes(entry.file.parent / path)
        except OSError as error:
            what = f"{entry.file.parent / path} cannot be read: {error.strerror}"
            faults.append(Fault(where=f"{entry.where} {entry.name}.{key}", what=what))
            return b""
    return None


def _exec(entry: Entry, cluster: Entry, environ: Mapping[str, str], faults: list[Fault]) -> PluginSpec | None:
    """Read what a user entry says of a credentials program."""
    said = entry.value["exec"]
    place = f"{entry.where} users[{entry.name}].exec"
    if not isinstance(said, dict):
        faults.append(Fault(where=place, what="a map is wanted"))
        return None
    before = len(faults)
    version, command = said.get("apiVersion"), said.get("command")
    if version not in VERSIONS:
        faults.append(
            Fault(where=f"{place}.apiVersion", what=f"{version!r} is none of {', '.join(VERSIONS)}")
        )
    if not isinstance(command, str) or not command:
        faults.append(Fault(where=f"{place}.command", what="is missing"))
    mode: Any = said.get("interactiveMode") or "IfAvailable"
    if mode not in ("Never", "IfAvailable", "Always"):
        faults.append(
            Fault(where=f"{place}.interactiveMode", what=f"{mode!r} is none of Never, IfAvailable, Always")
        )
    args, more = said.get("args") or [], said.get("env") or []
    if not isinstance(args, list) or not all(isinstance(word, str) for word in args):
        faults.append(Fault(where=f"{place}.args", what="a list of texts is wanted"))
    if not isinstance(more, list) or not all(_is_variable(item) for item in more):
        faults.append(Fault(where=f"{place}.env", what="a list of name and value is wanted"))
    if len(faults) > before:
        return None
    return PluginSpec(
        api_version=str(version),
        command=command_of(str(command), entry.file.parent.absolute()),
        args=tuple(args),
        environ={**environ, **{item["name"]: item["value"] for item in more}},
        interactive=mode,
        install_hint=str(said.get("installHint") or ""),
        cluster=_told(cluster) if said.get("provideClusterInfo") is True else None,
        where=place,
    )


def _is_variable(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("name"), str) and isinstance(item.get("value"), str)


def _told(cluster: Entry) -> dict[str, Any]:
    """Return what a credentials program is told of the cluster it is asked for."""
    names = (
        "server",
        "tls-server-name",
        "insecure-skip-tls-verify",
        "certificate-authority-data",
        "proxy-url",
    )
    told = {name: cluster.value[name] for name in names if cluster.value.get(name)}
    path = cluster.value.get("certificate-authority")
    if "certificate-authority-data" not in told and isinstance(path, str):
        full = Path(cluster.file.parent / path)
        if full.is_file():
            told["certificate-authority-data"] = base64.b64encode(full.read_bytes()).decode()
    for extension in cluster.value.get("extensions") or ():
        if isinstance(extension, dict) and extension.get("name") == "client.authentication.k8s.io/exec":
            told["config"] = extension.get("extension")
    return told


def _text(entry: Entry, key: str, faults: list[Fault]) -> str:
    found = ""
    with collected(faults):
        found = text_of(entry, key)
    return found
