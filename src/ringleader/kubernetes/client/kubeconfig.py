"""Kubeconfig files as ``kubectl`` reads them, and where the credentials of a cluster come from.

``--kubeconfig``, else the files of KUBECONFIG, else ``~/.kube/config``, else the service account that is
mounted into the Pod. Of several files the first that names a cluster, user, context or the current context
wins; files of KUBECONFIG that do not exist are passed over. How we authenticate is in `credentials`.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ringleader.errors import Fault, RequestError, collected, refuse
from ringleader.kubernetes.client.credential_plugin import VERSIONS, CredentialPlugin, PluginSpec, command_of
from ringleader.kubernetes.client.credentials import (
    Credentials,
    Identity,
    KeyPair,
    TokenFile,
    Trust,
    basic,
    proxy_of,
)
from ringleader.kubernetes.mpijob.yaml_text import documents
from ringleader.text_files import read_bytes, read_text

_ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"
"""Where the kubelet mounts a Pod's service account."""
_SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}
"""List in a kubeconfig → the field of its items that holds the content."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One named cluster, user or context, and the faults of its file or files."""

    section: str
    name: str
    value: Mapping[str, Any]
    file: Path
    """Paths in it are relative to that file's folder."""
    line: int
    faults: list[Fault] = field(default_factory=list)
    """What is found wrong with it is added here."""

    @property
    def where(self) -> str:
        """Return ``file:line``."""
        return f"{self.file}:{self.line}" if self.line else str(self.file)

    @property
    def place(self) -> str:
        """Return the entry's place for faults: ``file:line clusters[name]``."""
        return f"{self.where} {self.section}[{self.name}]"

    def fault(self, key: str, what: str, hint: str = "") -> None:
        """Note what is wrong with a field, or without one with all."""
        where = f"{self.place}.{key}" if key else self.place
        self.faults.append(Fault(where=where, what=what, hint=hint))

    def text(self, key: str) -> str:
        """Return a text; empty where there is none, or something else."""
        value = self.value.get(key)
        if value is not None and not isinstance(value, str):
            place = f"{self.where} {self.name}.{key}"
            self.faults.append(Fault(where=place, what=f"{value!r} is not text"))
        return value if isinstance(value, str) else ""

    def content(self, key: str) -> bytes | None:
        """Return what ``key-data`` holds, or the file that ``key`` names; ``None`` where neither is given."""
        path = Path()
        try:
            if data := self.text(f"{key}-data"):
                return base64.b64decode(data, validate=True)
            if name := self.text(key):
                path = self.file.parent / name
                return read_bytes(path)
        except (binascii.Error, ValueError):
            self.faults.append(Fault(where=f"{self.where} {self.name}.{key}-data", what="is not base64"))
        except OSError as error:
            what = f"{path} cannot be read: {error.strerror}"
            self.faults.append(Fault(where=f"{self.where} {self.name}.{key}", what=what))
        else:
            return None
        return b""


@dataclass(frozen=True, kw_only=True)
class Kubeconfig:
    """What all files together say."""

    files: tuple[Path, ...] = ()
    current: str = ""
    """``current-context``; empty where no file sets it."""
    clusters: Mapping[str, Entry] = field(default_factory=dict)
    users: Mapping[str, Entry] = field(default_factory=dict)
    contexts: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """True where it says nothing of any cluster, as without any file."""
        return not (self.clusters or self.contexts or self.current)


async def credentials(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    root: Path = Path("/"),
) -> Credentials:
    """Find out how to reach the cluster, as ``kubectl`` does; nothing is sent yet.

    ``environ`` and ``root`` (of the file system, for the mounted account) are those of this process unless
    given. Raises RequestError with what is wrong in which file, or where a cluster was looked for in vain.
    """
    environ = os.environ if environ is None else environ
    config = read(files_of(kubeconfig, environ))
    if config.is_empty and not context:
        if not kubeconfig and (found := in_cluster(environ, root)):
            return found
        raise RequestError(_nowhere(kubeconfig, environ))
    return _credentials_of(config, _context(config, context), environ)


def in_cluster(environ: Mapping[str, str], root: Path = Path("/")) -> Credentials | None:
    """Return the account of the Pod that we run in; ``None`` where this is not a Pod."""
    server, folder = server_of_pod(environ), root / _ACCOUNT
    if not server or not environ.get("KUBERNETES_SERVICE_PORT") or not (folder / "token").is_file():
        return None
    authority = folder / "ca.crt"
    namespace = environ.get("POD_NAMESPACE", "")
    if not namespace and (folder / "namespace").is_file():
        namespace = (folder / "namespace").read_text(encoding="utf-8").strip()
    pem = authority.read_text(encoding="utf-8") if authority.is_file() else ""
    return Credentials(
        server=server,
        identity=TokenFile(folder / "token"),
        trust=Trust(authority=pem, where=str(authority)),
        namespace=namespace or "default",
        context="in-cluster",
    )


def server_of_pod(environ: Mapping[str, str]) -> str:
    """Return the API server's address in a Pod; empty where this is not one."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    return (f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}") if host else ""


def namespace_of(kubeconfig: str | None, context: str | None, environ: Mapping[str, str]) -> str:
    """Return the namespace that would be used; ``default`` where nothing says one, or no cluster is there."""
    config = read(files_of(kubeconfig, environ))
    if not config.is_empty or context:
        return _context(config, context).text("namespace") or "default"
    found = in_cluster(environ)
    return "default" if found is None else found.namespace


def _nowhere(kubeconfig: str | None, environ: Mapping[str, str]) -> Fault:
    """Say where a cluster was looked for."""
    hint = "give --kubeconfig FILE, or set KUBECONFIG"
    if kubeconfig:
        return Fault(where="--kubeconfig", what=f"{kubeconfig} names no cluster", hint=hint)
    looked = f"KUBECONFIG is not set, {environ.get('HOME', '~')}/.kube/config"
    if listed := environ.get("KUBECONFIG"):
        looked = f"KUBECONFIG={listed}"
    what = f"no cluster is configured: {looked} is missing or empty, and this is not a Pod"
    return Fault(where="kubeconfig", what=what, hint=hint)


def files_of(kubeconfig: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files that count and exist: the one named, those of KUBECONFIG, or ~/.kube/config.

    A file that the user named must exist: RequestError. Those of KUBECONFIG need not.
    """
    if kubeconfig:
        named = Path(kubeconfig).expanduser()
        if not os.path.exists(named):  # noqa: PTH110 - a name without end is that of no file, too
            raise RequestError(Fault(where="--kubeconfig", what=f"{named}: no such file"))
        return (named,)
    listed = [Path(word) for word in environ.get("KUBECONFIG", "").split(":") if word]
    if not listed and environ.get("HOME"):
        listed = [Path(environ["HOME"]) / ".kube/config"]
    return tuple(dict.fromkeys(path for path in listed if os.path.exists(path)))  # noqa: PTH110


def read(files: tuple[Path, ...]) -> Kubeconfig:
    """Read and merge files. RequestError with every fault of every file, by file and line."""
    faults: list[Fault] = []
    current = ""
    merged: dict[str, dict[str, Entry]] = {section: {} for section in _SECTIONS}
    for path in files:
        with collected(faults):
            said, entries = _read_file(path)
            current = current or said
            for entry in entries:
                merged[entry.section].setdefault(entry.name, entry)
    refuse(faults)
    return Kubeconfig(files=files, current=current, **merged)


def _read_file(path: Path) -> tuple[str, list[Entry]]:
    """Return the current context and the entries of one file."""
    try:
        text = read_text(path)
    except OSError as error:
        raise RequestError(Fault(where=str(path), what=f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError:
        raise RequestError(Fault(where=str(path), what="is not text in UTF-8"))
    found = documents(text, str(path))
    if not found:
        return "", []
    value, lines = found[0].value, found[0].places.lines
    if not isinstance(value, dict):
        raise RequestError(Fault(where=f"{path}:1", what="is not a kubeconfig: a map is wanted"))
    faults: list[Fault] = []
    entries = []
    for section, content_key in _SECTIONS.items():
        items = value.get(section) or []
        if not isinstance(items, list):
            place = f"{path}:{lines.get((section,), 1)} {section}"
            faults.append(Fault(where=place, what="a list is wanted"))
            items = []
        for index, item in enumerate(items):
            line = lines.get((section, index), 0)
            content = (item.get(content_key) or {}) if isinstance(item, dict) else None
            name = item.get("name") if isinstance(item, dict) else None
            if isinstance(content, dict) and isinstance(name, str) and name:
                entries.append(Entry(section=section, name=name, value=content, file=path, line=line))
            else:
                what = f"each of {section} needs a name and a map called {content_key}"
                faults.append(Fault(where=f"{path}:{line} {section}[{index}]", what=what))
    current = value.get("current-context") or ""
    if not isinstance(current, str):
        line = lines.get(("current-context",), 1)
        faults.append(Fault(where=f"{path}:{line} current-context", what=f"{current!r} is not text"))
    refuse(faults)
    return current, entries


def _context(config: Kubeconfig, context: str | None) -> Entry:
    """Return a context by name, or the current one. RequestError names those that there are."""
    name, known = context or config.current, _list(config.contexts)
    place = ":".join(str(path) for path in config.files) or "kubeconfig"
    if not name:
        hint = f"give --context NAME or run `kubectl config use-context NAME` ({known})"
        raise RequestError(Fault(where=place, what="no current-context is set", hint=hint))
    entry = config.contexts.get(name)
    if entry is None:
        said = "" if context else "the current-context "
        what = f"{said}{name!r} is not a context ({known})"
        raise RequestError(Fault(where="--context" if context else place, what=what))
    user, cluster, _ = entry.text("user"), entry.text("cluster"), entry.text("namespace")
    refuse(entry.faults)
    for kind, one, entries in (("cluster", cluster, config.clusters), ("user", user, config.users)):
        if one not in entries and (one or kind == "cluster"):
            what = f"context {entry.name!r}: there is no {kind} {one!r} ({_list(entries)})"
            entry.faults.append(Fault(where=entry.where, what=what))
    refuse(entry.faults)
    return entry


def _list(known: Mapping[str, Entry]) -> str:
    return f"there are: {', '.join(sorted(known))}" if known else "there are none"


def _credentials_of(config: Kubeconfig, context: Entry, environ: Mapping[str, str]) -> Credentials:
    """Return the credentials of a context. RequestError with all its faults at once."""
    cluster, user = config.clusters[context.text("cluster")], config.users.get(context.text("user"))
    server, said = cluster.text("server"), cluster.text("proxy-url")
    if not _is_url(server):
        cluster.fault("server", f"{server!r} is not a URL", "https://HOST:PORT")
    authority = cluster.content("certificate-authority")
    is_blind = cluster.value.get("insecure-skip-tls-verify") is True
    if authority and is_blind:
        cluster.fault("", "insecure-skip-tls-verify and a certificate authority exclude each other")
    proxy = said or (proxy_of(server, environ) if _is_url(server) else "")
    if proxy and not _is_url(proxy):
        what = f"{proxy!r} is not an http:// or https:// URL, and other proxies are not known"
        where = f"{cluster.place}.proxy-url" if said else "HTTPS_PROXY"
        cluster.faults.append(Fault(where=where, what=what))
    pem = (authority or b"").decode(errors="replace")
    found = Credentials(
        server=server,
        trust=Trust(authority=pem, is_blind=is_blind, where=cluster.place),
        server_name=cluster.text("tls-server-name"),
        identity=Identity() if user is None else _identity(user, cluster, environ),
        namespace=context.text("namespace") or "default",
        context=context.name,
        extra_headers={} if user is None else _impersonation(user),
        proxy=proxy,
    )
    refuse((*cluster.faults, *(() if user is None else user.faults)))
    if found.trust.authority or found.identity.certificate is not None:
        _ = found.tls  # What is not a certificate is reported now, not with the first request.
    return found


def _is_url(text: str) -> bool:
    """True for an http:// or https:// URL with a host."""
    try:
        parts = urlsplit(text)
        # Asking for the port reads it; a host that no name server could be asked for is none.
        host = (parts.hostname or "").encode("idna")
        return parts.scheme in ("http", "https") and host != b"" and parts.port != 0
    except ValueError:
        return False


def _identity(user: Entry, cluster: Entry, environ: Mapping[str, str]) -> Identity:
    """Read how a user entry proves who we are."""
    certificate, key = user.content("client-certificate"), user.content("client-key")
    if (certificate is None) != (key is None):
        user.fault("", f"{'client-certificate' if certificate is None else 'client-key'} is missing")
    pair = KeyPair(certificate=certificate, key=key) if certificate and key else None
    if path := user.text("tokenFile"):
        full = user.file.parent / path
        if not full.is_file():
            user.fault("tokenFile", f"{full}: no such file")
        return TokenFile(full, certificate=pair)
    if token := user.text("token"):
        return Identity({"Authorization": f"Bearer {token}"}, pair)
    if name := user.text("username"):
        return Identity(basic(name, user.text("password")), pair)
    if user.value.get("exec") is not None:
        spec = _exec(user, cluster, environ)
        return Identity() if spec is None else CredentialPlugin(spec)
    if user.value.get("auth-provider") is not None:
        hint = "use an exec plugin such as kubelogin or gke-gcloud-auth-plugin"
        user.fault("auth-provider", "auth-provider is not supported", hint)
    return Identity(certificate=pair)


def _impersonation(user: Entry) -> dict[str, str]:
    """Return the headers that ask to act as somebody else (``as``, ``as-uid``)."""
    for name in ("as-groups", "as-user-extra"):
        if user.value.get(name):
            user.fault(name, "is not supported: only as and as-uid are")
    words = {"Impersonate-User": user.text("as"), "Impersonate-Uid": user.text("as-uid")}
    return {header: word for header, word in words.items() if word}


def _exec(user: Entry, cluster: Entry, environ: Mapping[str, str]) -> PluginSpec | None:
    """Read what a user entry says of a credentials program."""
    said = user.value["exec"]
    if not isinstance(said, dict):
        user.fault("exec", "a map is wanted")
        return None
    before = len(user.faults)
    version, command = said.get("apiVersion"), said.get("command")
    if version not in VERSIONS:
        user.fault("exec.apiVersion", f"{version!r} is none of {', '.join(VERSIONS)}")
    if not isinstance(command, str) or not command:
        user.fault("exec.command", "is missing")
    mode: Any = said.get("interactiveMode") or "IfAvailable"
    if mode not in ("Never", "IfAvailable", "Always"):
        user.fault("exec.interactiveMode", f"{mode!r} is none of Never, IfAvailable, Always")
    args, more = said.get("args") or [], said.get("env") or []
    if not isinstance(args, list) or not all(isinstance(word, str) for word in args):
        user.fault("exec.args", "a list of texts is wanted")
    if not isinstance(more, list) or not all(_is_variable(item) for item in more):
        user.fault("exec.env", "a list of name and value is wanted")
    if len(user.faults) > before:
        return None
    return PluginSpec(
        api_version=str(version),
        command=command_of(str(command), user.file.parent.absolute()),
        args=tuple(args),
        environ={**environ, **{item["name"]: item["value"] for item in more}},
        interactive=mode,
        install_hint=str(said.get("installHint") or ""),
        cluster=_told(cluster) if said.get("provideClusterInfo") is True else None,
        where=f"{user.place}.exec",
    )


def _is_variable(item: Any) -> bool:
    return isinstance(item, dict) and all(isinstance(item.get(key), str) for key in ("name", "value"))


_TOLD = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")


def _told(cluster: Entry) -> dict[str, Any]:
    """Return the cluster's description for a credentials program."""
    told = {name: cluster.value[name] for name in _TOLD if cluster.value.get(name)}
    path = cluster.value.get("certificate-authority")
    if "certificate-authority-data" not in told and isinstance(path, str):
        full = cluster.file.parent / path
        if full.is_file():
            told["certificate-authority-data"] = base64.b64encode(full.read_bytes()).decode()
    for extension in cluster.value.get("extensions") or ():
        if isinstance(extension, dict) and extension.get("name") == "client.authentication.k8s.io/exec":
            told["config"] = extension.get("extension")
    return told
