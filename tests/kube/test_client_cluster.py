"""The client against the fake API server: verbs, RBAC, TLS, logs."""

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
from tests.kube.handler_server import client as client_of
from tests.kube.handler_server import serve

from ringleader.errors import RefusedError
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import CONFIG_MAPS, NAMESPACES, PODS
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.client.informer import Informer
from ringleader.kubernetes.client.kubeconfig import credentials

SPACE = "default"


@asynccontextmanager
async def client(path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(await credentials(kubeconfig=str(path), environ={"PATH": os.environ["PATH"]}))
    try:
        yield cluster
    finally:
        await cluster.close()


def pod(name: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": SPACE}, "spec": spec}


async def test_the_life_of_an_object(kubeconfig: Path) -> None:
    metadata = {"name": "a", "namespace": SPACE, "labels": {"set": "yes"}}
    wish = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "1"}}
    async with client(kubeconfig) as cluster:
        made = await cluster.create(CONFIG_MAPS, wish)
        with pytest.raises(ApiError) as caught:
            await cluster.create(CONFIG_MAPS, wish)
        assert caught.value.is_there_already
        edit = {"data": {"x": None, "y": "2"}}
        assert (await cluster.patch(CONFIG_MAPS, "a", edit, SPACE))["data"] == {"y": "2"}
        with pytest.raises(ApiError) as caught:
            await cluster.replace(CONFIG_MAPS, made)
        assert caught.value.is_stale and not caught.value.is_there_already
        now = await cluster.get(CONFIG_MAPS, "a", SPACE)
        assert (await cluster.replace(CONFIG_MAPS, {**now, "data": {}})).get("data", {}) == {}
        for words in ({"labels": "set=yes"}, {"fields": "metadata.name=a"}):
            found = await cluster.list(CONFIG_MAPS, SPACE, **words)
            assert [(item["kind"], item["metadata"]["name"]) for item in found.items] == [("ConfigMap", "a")]
        assert (await cluster.list(CONFIG_MAPS, labels="set=no")).items == ()
        with pytest.raises(ApiError, match="HTTP 409 Conflict"):
            await cluster.delete(CONFIG_MAPS, "a", SPACE, uid="another")
        await cluster.delete(CONFIG_MAPS, "a", SPACE, uid=made["metadata"]["uid"])
        with pytest.raises(ApiError) as caught:
            await cluster.get(CONFIG_MAPS, "a", SPACE)
        assert caught.value.is_missing


async def test_what_one_may_not_do(fake: FakeCluster, tmp_path: Path) -> None:
    async with client(fake.write_kubeconfig(tmp_path / "eve", token=fake.add_user("eve"))) as cluster:
        with pytest.raises(ApiError, match='User "eve" cannot create resource "pods"') as caught:
            await cluster.create(PODS, pod("p"))
        assert caught.value.status == 403
        informer: Informer[str] = Informer(cluster, PODS, project=lambda document: "")
        with pytest.raises(RefusedError, match="cannot list resource"):
            await informer.run()
        assert not informer.synced.is_set()


async def test_a_log(fake: FakeCluster, kubeconfig: Path) -> None:
    fake.create(pod("p"))
    fake.write_log("p", "one\ntwo\nthree\n")

    async def text(cluster: Cluster, **options: Any) -> bytes:
        return b"".join([piece async for piece in cluster.logs("p", SPACE, **options)])

    async with client(kubeconfig) as cluster:
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


# --- TLS --------------------------------------------------------------------------------------------------


async def test_tls(tmp_path: Path) -> None:
    with FakeCluster(tls=True) as fake:
        path = fake.write_kubeconfig(tmp_path / "k")
        config = json.loads(path.read_text())
        entry = config["clusters"][0]["cluster"]
        data, file = "certificate-authority-data", "certificate-authority"

        async def fault(**changes: Any) -> str:
            """Empty where it worked, else what was told."""
            changed = {**entry, **changes}
            config["clusters"][0]["cluster"] = {k: value for k, value in changed.items() if value is not None}
            path.write_text(json.dumps(config))
            async with client(path) as cluster:
                try:
                    await cluster.get(NAMESPACES, SPACE)
                except UnreachableError as error:
                    return str(error)
            return ""

        assert await fault() == ""
        (tmp_path / "ca.pem").write_bytes(b64decode(entry[data]))
        assert await fault(**{data: None, file: "ca.pem"}) == ""
        assert await fault(**{data: None, "insecure-skip-tls-verify": True}) == ""
        assert await fault(**{"tls-server-name": "localhost"}) == ""
        untrusted = await fault(**{data: None})
        assert "its certificate is not trusted" in untrusted and fake.url in untrusted
        assert "→ see certificate-authority-data and tls-server-name" in untrusted
        misnamed = await fault(**{"tls-server-name": "elsewhere"})
        assert "its certificate is not trusted" in misnamed and "elsewhere" in misnamed
        plain = await fault(server=fake.url.replace("https:", "http:"))
        assert "the connection broke off" in plain or "HTTP" in plain


async def test_https_to_a_server_without_tls(fake: FakeCluster) -> None:
    async with client_of(fake.url.replace("http:", "https:")) as cluster:
        with pytest.raises(UnreachableError, match=r"does it speak TLS\?"):
            await cluster.get(NAMESPACES, "n")


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
    pair = {"client-certificate-data": b64encode(shown), "client-key-data": b64encode(shown_key)}
    users: dict[str, dict[str, Any]] = {
        "kubeconfig": {name: data.decode() for name, data in pair.items()},
        "program": {"exec": {"apiVersion": version, "command": "echo", "args": [answer]}},
        "none": {},
    }

    async def handler(request: web.Request) -> web.StreamResponse:
        names = request.transport.get_extra_info("peercert")["subject"]
        return web.json_response({"you": dict(names[0])["commonName"]})

    async with serve(handler, tls=context) as url:
        trust = {"certificate-authority-data": b64encode(served).decode(), "tls-server-name": "server"}
        config = {
            "clusters": [{"name": "c", "cluster": {"server": url, **trust}}],
            "users": [{"name": "u", "user": users[way]}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "k").write_text(json.dumps(config))
        async with client(tmp_path / "k") as found:
            if way == "none":
                with pytest.raises(UnreachableError):
                    await found.get(NAMESPACES, "n")
            else:
                assert await found.get(NAMESPACES, "n") == {"you": "me"}
