"""The client against the fake API server: verbs, RBAC, TLS, logs, informers under trouble."""

import json
import os
import ssl
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.kube.fake import FakeCluster
from tests.kube.fake.cluster import self_signed
from tests.kube.handler_server import run, serve

from ringleader.errors import RefusedError
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import CONFIG_MAPS, NAMESPACES, PODS
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.client.credentials import Credentials, Identity
from ringleader.kubernetes.client.informer import Informer
from ringleader.kubernetes.client.kubeconfig import credentials

SPACE = "default"


@asynccontextmanager
async def client(path: Path, **options: Any) -> AsyncIterator[Cluster]:
    cluster = Cluster(await credentials(kubeconfig=str(path), environ={}), **options)
    try:
        yield cluster
    finally:
        await cluster.close()


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": SPACE, "labels": {"set": "yes"}},
        "data": data,
    }


def pod(name: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": SPACE}, "spec": spec}


# --- verbs ------------------------------------------------------------------------------------------------


async def test_the_life_of_an_object(kubeconfig: Path) -> None:
    async with client(kubeconfig) as cluster:
        made = await cluster.create(CONFIG_MAPS, config_map("a", x="1"))
        with pytest.raises(ApiError) as caught:
            await cluster.create(CONFIG_MAPS, config_map("a"))
        assert caught.value.is_there_already
        changed = await cluster.patch(CONFIG_MAPS, "a", {"data": {"y": "2"}}, SPACE)
        assert changed["data"] == {"x": "1", "y": "2"}
        edit = {"data": {"x": None}}
        assert (await cluster.patch(CONFIG_MAPS, "a", edit, SPACE))["data"] == {"y": "2"}
        with pytest.raises(ApiError) as caught:
            await cluster.replace(CONFIG_MAPS, made)
        assert caught.value.is_stale and not caught.value.is_there_already
        now = await cluster.get(CONFIG_MAPS, "a", SPACE)
        assert (await cluster.replace(CONFIG_MAPS, {**now, "data": {}})).get("data", {}) == {}
        with pytest.raises(ApiError, match="HTTP 409 Conflict"):
            await cluster.delete(CONFIG_MAPS, "a", SPACE, uid="another")
        await cluster.delete(CONFIG_MAPS, "a", SPACE, uid=made["metadata"]["uid"])
        with pytest.raises(ApiError) as caught:
            await cluster.get(CONFIG_MAPS, "a", SPACE)
        assert caught.value.is_missing


async def test_listing_by_selectors(kubeconfig: Path) -> None:
    async with client(kubeconfig) as cluster:
        for name in "abc":
            await cluster.create(CONFIG_MAPS, config_map(name))
        await cluster.patch(CONFIG_MAPS, "b", {"metadata": {"labels": None}}, SPACE)
        found = await cluster.list(CONFIG_MAPS, SPACE, labels="set=yes")
        assert [item["metadata"]["name"] for item in found.items] == ["a", "c"]
        found = await cluster.list(CONFIG_MAPS, fields="metadata.name=b")
        assert [(item["kind"], item["metadata"]["name"]) for item in found.items] == [("ConfigMap", "b")]


async def test_what_one_may_not_do(fake: FakeCluster, tmp_path: Path) -> None:
    path = fake.write_kubeconfig(tmp_path / "eve", token=fake.add_user("eve"))

    async with client(path) as cluster:
        with pytest.raises(ApiError) as caught:
            await cluster.create(PODS, pod("p"))
        assert caught.value.status == 403
        assert 'User "eve" cannot create resource "pods"' in str(caught.value)
        informer: Informer[str] = Informer(cluster, PODS, project=lambda document: "")
        with pytest.raises(RefusedError, match="cannot list resource"):
            await informer.run()
        assert not informer.synced.is_set()


# --- TLS --------------------------------------------------------------------------------------------------


def test_tls(tmp_path: Path) -> None:
    with FakeCluster(tls=True) as fake:
        path = fake.write_kubeconfig(tmp_path / "k")
        config = json.loads(path.read_text())
        entry = config["clusters"][0]["cluster"]

        async def fault(**changes: Any) -> str:
            """Empty where it worked, else what was told."""
            changed = {**entry, **changes}
            kept = {name: value for name, value in changed.items() if value is not None}
            config["clusters"][0]["cluster"] = kept
            path.write_text(json.dumps(config))
            async with client(path) as cluster:
                try:
                    await cluster.get(NAMESPACES, SPACE)
                except UnreachableError as error:
                    return str(error)
            return ""

        async def test() -> None:
            assert await fault() == ""
            (tmp_path / "ca.pem").write_bytes(b64decode(entry["certificate-authority-data"]))
            assert (
                await fault(**{"certificate-authority-data": None, "certificate-authority": "ca.pem"}) == ""
            )
            blind = {"certificate-authority-data": None, "insecure-skip-tls-verify": True}
            assert await fault(**blind) == ""
            assert await fault(**{"tls-server-name": "localhost"}) == ""
            untrusted = await fault(**{"certificate-authority-data": None})
            assert "its certificate is not trusted" in untrusted and fake.url in untrusted
            assert "→ see certificate-authority-data and tls-server-name" in untrusted
            misnamed = await fault(**{"tls-server-name": "elsewhere"})
            assert "its certificate is not trusted" in misnamed and "elsewhere" in misnamed
            plain = await fault(server=fake.url.replace("https:", "http:"))
            assert "the connection broke off" in plain or "HTTP" in plain

        run(test)


@pytest.mark.parametrize("way", ["kubeconfig", "program", "none"])
async def test_a_client_certificate(tmp_path: Path, way: str) -> None:
    (served, served_key), (shown, shown_key) = self_signed("server"), self_signed("me")
    (tmp_path / "server.pem").write_bytes(served + served_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=shown.decode())
    status = {"clientCertificateData": shown.decode(), "clientKeyData": shown_key.decode()}
    version = "client.authentication.k8s.io/v1"
    answer = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    users: dict[str, dict[str, Any]] = {
        "kubeconfig": {
            "client-certificate-data": b64encode(shown).decode(),
            "client-key-data": b64encode(shown_key).decode(),
        },
        "program": {"exec": {"apiVersion": version, "command": "echo", "args": [answer]}},
        "none": {},
    }

    async def handler(request: web.Request) -> web.StreamResponse:
        names = request.transport.get_extra_info("peercert")["subject"]
        return web.json_response({"you": dict(names[0])["commonName"]})

    async with serve(handler, tls=context) as url:
        cluster = {
            "server": url,
            "tls-server-name": "server",
            "certificate-authority-data": b64encode(served).decode(),
        }
        config = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": users[way]}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "k").write_text(json.dumps(config))
        environ = {"PATH": os.environ["PATH"]}
        found = Cluster(await credentials(kubeconfig=str(tmp_path / "k"), environ=environ))
        try:
            if way == "none":
                with pytest.raises(UnreachableError):
                    await found.get(NAMESPACES, "n")
            else:
                assert await found.get(NAMESPACES, "n") == {"you": "me"}
        finally:
            await found.close()


async def test_https_to_a_server_without_tls(fake: FakeCluster) -> None:
    found = Credentials(server=fake.url.replace("http:", "https:"), identity=Identity())
    cluster = Cluster(found)
    with pytest.raises(UnreachableError) as caught:
        await cluster.get(NAMESPACES, "n")
    assert "does it speak TLS?" in str(caught.value)
    await cluster.close()


# --- logs -------------------------------------------------------------------------------------------------


def running(fake: FakeCluster, name: str) -> None:
    """Make a Pod that runs."""

    def edit(document: dict[str, Any]) -> None:
        document["spec"]["nodeName"] = "n"
        states = [{"name": "c", "state": {"running": {}}, "ready": True}]
        document["status"] = {"phase": "Running", "containerStatuses": states}

    fake.create(pod(name))
    fake.change("pods", name, edit)


async def test_a_log(fake: FakeCluster, kubeconfig: Path) -> None:
    running(fake, "p")
    fake.write_log("p", "one\ntwo\nthree\n")

    async def text(cluster: Cluster, **options: Any) -> bytes:
        return b"".join([piece async for piece in cluster.logs("p", SPACE, **options)])

    async with client(kubeconfig) as cluster:
        assert await text(cluster) == b"one\ntwo\nthree\n"
        assert await text(cluster, tail=1) == b"three\n"
        assert await text(cluster, limit_bytes=5) == b"one\nt"
        following = cluster.logs("p", SPACE, follow=True)
        assert await anext(following) == b"one\ntwo\nthree\n"
        fake.write_log("p", "four\n")
        assert await anext(following) == b"four\n"
        await following.aclose()
        with pytest.raises(ApiError) as caught:
            await anext(cluster.logs("q", SPACE))
        assert caught.value.is_missing


# --- informers under trouble ------------------------------------------------------------------------------


# --- a server that is away --------------------------------------------------------------------------------
