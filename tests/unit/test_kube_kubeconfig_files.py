"""Kubeconfig files become credentials, or faults that name file and line."""

import asyncio
import json
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ringleader.errors import RequestError
from ringleader.kubernetes.client.credentials import Credentials
from ringleader.kubernetes.client.kubeconfig import credentials


def config(
    *,
    clusters: Mapping[str, object] | None = None,
    users: Mapping[str, object] | None = None,
    contexts: Mapping[str, object] | None = None,
    current: str | None = None,
) -> str:
    """A kubeconfig's text (JSON is YAML)."""

    def named(word: str, entries: Mapping[str, object] | None) -> list[dict[str, object]]:
        return [{"name": name, word: value} for name, value in (entries or {}).items()]

    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": named("cluster", clusters),
        "users": named("user", users),
        "contexts": named("context", contexts),
    }
    if current is not None:
        document["current-context"] = current
    return json.dumps(document, indent=1)


def one(cluster: Mapping[str, object], user: Mapping[str, object], **context: str) -> str:
    """A kubeconfig with one of each."""
    return config(
        clusters={"c": cluster},
        users={"u": user},
        contexts={"x": {"cluster": "c", "user": "u", **context}},
        current="x",
    )


def load(kubeconfig: Path | str | None = None, *, context: str | None = None, **environ: str) -> Credentials:
    named = None if kubeconfig is None else str(kubeconfig)
    return asyncio.run(credentials(kubeconfig=named, context=context, environ=environ, root=Path("/nowhere")))


def headers(found: Credentials) -> dict[str, str]:
    return asyncio.run(found.headers())


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


TLS = {"server": "https://one.example:6443/"}
FIRST = config(
    clusters={"c": {"server": "https://first:1"}},
    users={"u": {"token": "first"}},
    contexts={"one": {"cluster": "c", "user": "u", "namespace": "n-first"}},
    current="one",
)
SECOND = config(
    clusters={"c": {"server": "https://second:1", "tls-server-name": "name"}, "d": {"server": "https://d:1"}},
    users={"u": {"username": "second", "password": "word"}},
    contexts={
        "one": {"cluster": "d", "user": "u", "namespace": "n-second"},
        "two": {"cluster": "c", "user": "u"},
        "three": {"cluster": "d"},
    },
    current="two",
)


# --- which file counts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "context", "expected"),
    [
        ("first:second", None, ("https://first:1", "n-first", "one")),
        ("second:first", None, ("https://second:1", "default", "two")),
        ("missing:first:second", None, ("https://first:1", "n-first", "one")),
        ("first:second", "two", ("https://first:1", "default", "two")),
        ("first:second", "three", ("https://d:1", "default", "three")),
        (":second::", None, ("https://second:1", "default", "two")),
    ],
)
def test_several_files(tmp_path: Path, value: str, context: str | None, expected: tuple[str, ...]) -> None:
    write(tmp_path, "first", FIRST), write(tmp_path, "second", SECOND)
    paths = ":".join(str(tmp_path / name) if name else "" for name in value.split(":"))
    found = load(context=context, KUBECONFIG=paths)
    assert (found.server, found.namespace, found.context) == expected


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is the judge")
@pytest.mark.parametrize("value", ["first:second", "missing:second:first"])
@pytest.mark.parametrize("context", [None, "one", "two", "three"])
@pytest.mark.process
def test_kubectl_chooses_the_same(tmp_path: Path, value: str, context: str | None) -> None:
    write(tmp_path, "first", FIRST), write(tmp_path, "second", SECOND)
    paths = ":".join(str(tmp_path / name) for name in value.split(":"))
    argv = ["kubectl", "config", "view", "--raw", "--minify", "-o", "json"]
    argv += ["--context", context] if context else []
    environ = {"KUBECONFIG": paths, "HOME": str(tmp_path), "PATH": "/usr/bin:/bin:/usr/local/bin"}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60)
    try:
        found = load(context=context, KUBECONFIG=paths)
    except RequestError:
        assert done.returncode != 0
        return
    said = json.loads(done.stdout)
    assert said["clusters"][0]["cluster"]["server"] == found.server
    assert said["clusters"][0]["cluster"].get("tls-server-name", "") == found.server_name
    assert said["contexts"][0]["context"].get("namespace", "default") == found.namespace
    assert said["current-context"] == found.context
    has_token = any(user["user"].get("token") for user in said["users"] or ())
    assert headers(found).get("Authorization", "").startswith("Bearer") == has_token


def test_the_named_file_counts_alone(tmp_path: Path) -> None:
    first, second = write(tmp_path, "first", FIRST), write(tmp_path, "second", SECOND)
    assert load(second, KUBECONFIG=str(first)).context == "two"


def test_the_home_folder_is_last(tmp_path: Path) -> None:
    write(tmp_path, ".kube/config", FIRST)
    assert load(HOME=str(tmp_path)).context == "one"
    second = write(tmp_path, "second", SECOND)
    assert load(HOME=str(tmp_path), KUBECONFIG=str(second)).context == "two"


# --- what a context says ----------------------------------------------------------------------------------


def test_a_token_and_a_namespace(tmp_path: Path) -> None:
    found = load(write(tmp_path, "k", one(TLS, {"token": "secret"}, namespace="team-a")))
    assert (found.server, found.namespace) == ("https://one.example:6443", "team-a")
    assert headers(found) == {"Authorization": "Bearer secret"}
    assert found.tls is not None and found.tls.check_hostname
    assert not found.forget()


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"username": "me", "password": "word"}, {"Authorization": "Basic bWU6d29yZA=="}),
        ({}, {}),
        ({"token": "t", "username": "me"}, {"Authorization": "Bearer t"}),
        ({"token": "t", "as": "eve"}, {"Authorization": "Bearer t", "Impersonate-User": "eve"}),
    ],
)
def test_ways_to_say_who_we_are(tmp_path: Path, user: dict[str, str], expected: dict[str, str]) -> None:
    assert headers(load(write(tmp_path, "k", one(TLS, user)))) == expected


def test_no_secret_leaves_over_plain_http(tmp_path: Path) -> None:
    path = write(tmp_path, "k", one({"server": "http://one.example:80"}, {"token": "secret"}))
    found = load(path)
    assert headers(found) == {} and found.tls is None
    path.write_text(path.read_text().replace("one.example", "127.0.0.1"))
    assert headers(load(path)) == {"Authorization": "Bearer secret"}


def test_a_token_file_beside_the_kubeconfig_wins_over_a_token(tmp_path: Path) -> None:
    write(tmp_path, "sub/token", "from-file\n")
    path = write(tmp_path, "sub/k", one(TLS, {"token": "old", "tokenFile": "token"}))
    assert headers(load(path)) == {"Authorization": "Bearer from-file"}


def test_an_unchecked_certificate_and_another_name(tmp_path: Path) -> None:
    cluster = {**TLS, "insecure-skip-tls-verify": True, "tls-server-name": "inside"}
    found = load(write(tmp_path, "k", one(cluster, {})))
    assert found.tls is not None and not found.tls.check_hostname
    assert found.server_name == "inside"


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({"HTTPS_PROXY": "proxy:3128"}, "http://proxy:3128"),
        ({"https_proxy": "http://proxy:1"}, "http://proxy:1"),
        ({"HTTP_PROXY": "http://proxy:1"}, ""),
        ({"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "other,.example"}, ""),
        ({"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "one.example"}, ""),
        ({"HTTPS_PROXY": "http://proxy:1", "no_proxy": "*"}, ""),
        ({"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "ne.example,10.0.0.0/8"}, "http://proxy:1"),
    ],
)
def test_the_environment_s_proxy(tmp_path: Path, environ: dict[str, str], proxy: str) -> None:
    assert load(write(tmp_path, "k", one(TLS, {})), **environ).proxy == proxy


@pytest.mark.parametrize("server", ["https://127.0.0.1:1", "https://localhost:1", "https://[::1]:1"])
def test_no_proxy_to_loopback(tmp_path: Path, server: str) -> None:
    assert load(write(tmp_path, "k", one({"server": server}, {})), HTTPS_PROXY="http://p:1").proxy == ""


def test_ranges_in_no_proxy(tmp_path: Path) -> None:
    path = write(tmp_path, "k", one({"server": "https://10.1.2.3"}, {}))
    assert load(path, HTTPS_PROXY="http://p:1", NO_PROXY="10.0.0.0/8").proxy == ""
    assert load(path, HTTPS_PROXY="http://p:1", NO_PROXY="10.9.0.0/16").proxy == "http://p:1"


def test_a_proxy_in_the_kubeconfig_wins(tmp_path: Path) -> None:
    path = write(tmp_path, "k", one({**TLS, "proxy-url": "http://mine:1"}, {}))
    assert load(path, HTTPS_PROXY="http://other:1").proxy == "http://mine:1"


# --- a Pod's own account ----------------------------------------------------------------------------------


def account(root: Path, **files: str) -> Path:
    folder = root / "var/run/secrets/kubernetes.io/serviceaccount"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.mark.parametrize(
    ("environ", "server", "namespace"),
    [
        (POD, "https://10.0.0.1:443", "team-b"),
        ({**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}, "https://[fd00::1]:443", "team-b"),
        ({**POD, "POD_NAMESPACE": "told"}, "https://10.0.0.1:443", "told"),
    ],
)
def test_the_account_of_a_pod(tmp_path: Path, environ: dict[str, str], server: str, namespace: str) -> None:
    account(tmp_path, token="first\n", namespace="team-b\n")
    found = asyncio.run(credentials(environ=environ, root=tmp_path))
    assert (found.server, found.namespace, found.context) == (server, namespace, "in-cluster")
    assert headers(found) == {"Authorization": "Bearer first"}


def test_a_kubeconfig_wins_over_the_account(tmp_path: Path) -> None:
    account(tmp_path, token="t")
    path = write(tmp_path, "k", FIRST)
    found = asyncio.run(credentials(environ={**POD, "KUBECONFIG": str(path)}, root=tmp_path))
    assert found.context == "one"


def test_an_empty_kubeconfig_does_not(tmp_path: Path) -> None:
    account(tmp_path, token="t")
    path = write(tmp_path, "k", "apiVersion: v1\nkind: Config\nclusters: null\n")
    found = asyncio.run(credentials(environ={**POD, "KUBECONFIG": str(path)}, root=tmp_path))
    assert found.context == "in-cluster"


# --- what is wrong ----------------------------------------------------------------------------------------


def faults(path: Path | str | None, *, context: str | None = None, **environ: str) -> list[str]:
    with pytest.raises(RequestError) as caught:
        load(path, context=context, **environ)
    return [str(fault) for fault in caught.value.faults]


def test_no_cluster_anywhere(tmp_path: Path) -> None:
    home = tmp_path / "home"
    [said] = faults(None, HOME=str(home))
    assert f"KUBECONFIG is not set, {home}/.kube/config is missing or empty, and this is not a Pod" in said
    assert "→ give --kubeconfig FILE, or set KUBECONFIG" in said
    [said] = faults(None, HOME=str(home), KUBECONFIG="/no/such:/nor/this")
    assert "KUBECONFIG=/no/such:/nor/this is missing or empty" in said


def test_a_named_file_that_is_not_there(tmp_path: Path) -> None:
    assert faults(tmp_path / "no") == [f"--kubeconfig: {tmp_path / 'no'}: no such file"]


def test_contexts_that_are_not_there(tmp_path: Path) -> None:
    path = write(tmp_path, "k", SECOND)
    assert faults(path, context="four") == ["--context: 'four' is not a context (there are: one, three, two)"]
    path = write(tmp_path, "k", SECOND.replace('"current-context": "two"', '"current-context": "gone"'))
    assert faults(path) == [
        f"{path}: the current-context 'gone' is not a context (there are: one, three, two)"
    ]
    path = write(tmp_path, "k", SECOND.replace('"current-context": "two"', '"current-context": ""'))
    [said] = faults(path)
    assert said.startswith(f"{path}: no current-context is set") and "one, three, two" in said


def test_a_context_that_leads_nowhere(tmp_path: Path) -> None:
    text = config(clusters={"c": TLS}, contexts={"x": {"cluster": "d", "user": "v"}}, current="x")
    found = faults(write(tmp_path, "k", text))
    assert len(found) == 2
    assert "context 'x': there is no cluster 'd' (there are: c)" in found[0]
    assert "context 'x': there is no user 'v' (there are none)" in found[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clusters: [\n", "k:2: is not YAML"),
        ("clusters:\n\t- name: x\n", "k:2: is not YAML"),
        ("- a\n", "k:1: is not a kubeconfig"),
        ("clusters: {}\nusers: 5\n", "k:2 users: a list is wanted"),
        ("clusters:\n- cluster: {}\n", "k:2 clusters[0]: each of clusters needs a name"),
        ("users:\n- {name: a, user: b}\n", "k:2 users[0]: each of users needs a name and a map called user"),
        ("current-context: [a]\n", "k:1 current-context: ['a'] is not text"),
    ],
)
def test_files_that_are_no_kubeconfig(tmp_path: Path, text: str, said: str) -> None:
    found = faults(write(tmp_path, "k", text))
    assert any(said in fault for fault in found), found


def test_every_broken_file_is_named(tmp_path: Path) -> None:
    one, two = write(tmp_path, "one", "a: ["), write(tmp_path, "two", "b: {")
    found = faults(None, KUBECONFIG=f"{one}:{two}")
    assert [fault.split(":")[0] for fault in found] == [str(one), str(two)]


def test_all_faults_of_a_context_at_once(tmp_path: Path) -> None:
    cluster = {"server": "one.example:6443", "certificate-authority": "ca.pem", "proxy-url": "socks5://p"}
    user = {
        "client-certificate": "no.pem",
        "client-key-data": "%%%",
        "tokenFile": "no-token",
        "as-groups": ["a"],
    }
    found = "\n".join(faults(write(tmp_path, "k", one(cluster, user))))
    for said in (
        ".server: 'one.example:6443' is not a URL",
        f"{tmp_path}/ca.pem cannot be read: No such file or directory",
        "proxy-url: 'socks5://p' is not an http:// or https:// URL, and other proxies are not known",
        f"{tmp_path}/no.pem cannot be read: No such file or directory",
        "client-key-data: is not base64",
        f"{tmp_path}/no-token: no such file",
        "as-groups: is not supported",
    ):
        assert said in found, found


@pytest.mark.parametrize(
    "server",
    [
        "",
        "host",
        "host:6443",
        "ftp://host",
        "https://",
        "https://[::1",
        "https://host:port",
        "https://h:0",
        "https://a..b",
    ],
)
def test_servers_that_are_no_url(tmp_path: Path, server: str) -> None:
    found = faults(write(tmp_path, "k", one({"server": server}, {})), HTTPS_PROXY="http://proxy:1")
    assert len(found) == 1 and f".server: {server!r} is not a URL\n    → https://HOST:PORT" in found[0]


def test_an_environment_s_proxy_that_is_no_url(tmp_path: Path) -> None:
    [found] = faults(write(tmp_path, "k", one(TLS, {})), HTTPS_PROXY="socks5://p")
    assert found.startswith("HTTPS_PROXY: 'socks5://p' is not an http:// or https:// URL")


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({**TLS, "certificate-authority-data": b64encode(b"no PEM").decode()}, {},
         "not a certificate in PEM"),
        ({**TLS, "certificate-authority-data": "eA==", "insecure-skip-tls-verify": True}, {},
         "exclude each other"),
        (TLS, {"client-key-data": "eA=="}, "client-certificate is missing"),
        ({**TLS, "insecure-skip-tls-verify": True},
         {"client-key-data": "eA==", "client-certificate-data": "eA=="},
         "the client certificate and its key cannot be used"),
        (TLS, {"auth-provider": {"name": "oidc"}}, "auth-provider is not supported"),
        (TLS, {"exec": {"command": "x"}}, "exec.apiVersion: None is none of client.authentication.k8s.io/v1"),
        (TLS, {"exec": 5}, "exec: a map is wanted"),
        (TLS, {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "args": [1], "env": ["a"]}},
         "exec.command: is missing"),
        (TLS, {"token": 5}, "u.token: 5 is not text"),
    ],
)  # fmt: skip
def test_entries_that_are_wrong(
    tmp_path: Path, cluster: dict[str, object], user: dict[str, object], said: str
) -> None:
    found = faults(write(tmp_path, "k", one(cluster, user)))
    assert any(said in fault for fault in found), found
    assert all(fault.startswith(f"{tmp_path}/k:") for fault in found), found
