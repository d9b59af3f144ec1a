"""Tokens that are renewed and programs that give credentials."""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ringleader.errors import RefusedError, RequestError
from ringleader.kubernetes.client.credential_plugin import CredentialPlugin, PluginSpec
from ringleader.kubernetes.client.credentials import TokenFile

pytestmark = pytest.mark.process

V1 = "client.authentication.k8s.io/v1"


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", Clock()
    path.write_text("one\n")
    identity = TokenFile(path, clock=clock)

    def token() -> str:
        return asyncio.run(identity.headers())["Authorization"]

    assert token() == "Bearer one"
    path.write_text("two")
    clock.now += 9
    assert token() == "Bearer one"
    clock.now += 1
    assert token() == "Bearer two"
    assert not identity.forget(), "the file holds what was refused"
    path.write_text("three")
    assert identity.forget()
    assert token() == "Bearer three"


def test_a_token_that_is_being_rewritten_stays(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", Clock()
    path.write_text("one")
    identity = TokenFile(path, clock=clock)
    asyncio.run(identity.headers())
    path.write_text("")
    clock.now += 100
    assert asyncio.run(identity.headers())["Authorization"] == "Bearer one"
    path.unlink()
    clock.now += 100
    assert asyncio.run(identity.headers())["Authorization"] == "Bearer one"
    assert not identity.forget()


@pytest.mark.parametrize(
    ("text", "said"), [(None, "the token cannot be read: No such file"), ("", "no token")]
)
def test_no_token(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
    with pytest.raises(RefusedError, match=said):
        asyncio.run(TokenFile(path).headers())


# --- programs ---------------------------------------------------------------------------------------------


def program(folder: Path, code: str, **more: object) -> PluginSpec:
    """A credentials program in Python; ``say(status)`` prints an ExecCredential. Its runs are counted."""
    head = (
        "import json, os, sys\n"
        f"open({str(folder / 'runs')!r}, 'a').write('x')\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "def say(status, version=info['apiVersion'], kind='ExecCredential'):\n"
        "    print(json.dumps({'apiVersion': version, 'kind': kind, 'status': status}))\n"
    )
    path = folder / "program.py"
    path.write_text(head + code)
    spec = PluginSpec(
        api_version=V1,
        command=sys.executable,
        args=("-I", "-S", str(path)),
        environ={"WORD": "given"},
        interactive="Never",
        where="k:1 users[u].exec",
    )
    return replace(spec, **more)  # type: ignore[arg-type]


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text())


async def test_a_token_is_kept_until_it_ends(tmp_path: Path) -> None:
    code = "say({'token': os.environ['WORD'], 'expirationTimestamp': '1970-01-01T01:00:00Z'})"
    clock = Clock()
    plugin = CredentialPlugin(program(tmp_path, code), now=clock)

    async def ask() -> None:
        # Several at once run it once.
        for found in await asyncio.gather(*(plugin.headers() for _ in range(5))):
            assert found == {"Authorization": "Bearer given"}

    await ask()
    clock.now = 3600 - 31
    await ask()
    assert runs(tmp_path) == 1
    clock.now = 3600 - 29
    await ask()
    assert runs(tmp_path) == 2
    assert plugin.certificate is None


async def test_a_token_without_an_end_is_kept_until_it_is_refused(tmp_path: Path) -> None:
    plugin = CredentialPlugin(program(tmp_path, "say({'token': 't'})"))

    await plugin.headers()
    await plugin.headers()
    assert runs(tmp_path) == 1
    assert plugin.forget()
    assert not plugin.forget(), "nothing is kept any more"
    await plugin.headers()
    assert runs(tmp_path) == 2


def test_a_certificate(tmp_path: Path) -> None:
    plugin = CredentialPlugin(
        program(tmp_path, "say({'clientCertificateData': 'PEM', 'clientKeyData': 'KEY'})")
    )
    assert asyncio.run(plugin.headers()) == {}
    pair = plugin.certificate
    assert pair is not None and (pair.certificate, pair.key) == (b"PEM", b"KEY")
    assert "KEY" not in repr(pair)


def test_what_the_program_is_told(tmp_path: Path) -> None:
    cluster = {"server": "https://one", "config": {"a": 1}}
    plugin = CredentialPlugin(
        program(tmp_path, "say({'token': json.dumps(info, sort_keys=True)})", cluster=cluster)
    )
    told = json.loads(asyncio.run(plugin.headers())["Authorization"].removeprefix("Bearer "))
    spec = {"cluster": cluster, "interactive": False}
    assert told == {"apiVersion": V1, "kind": "ExecCredential", "spec": spec}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("sys.exit('log in first')", "ended with exit code 1: log in first"),
        ("print('hello')", "printed something that is not JSON"),
        ("print('[]')", "printed something that is not an ExecCredential"),
        ("say({}, kind='Status')", "printed something that is not an ExecCredential"),
        ("say({'token': 't'}, version='client.authentication.k8s.io/v1alpha1')", "v1alpha1, and the kube"),
        ("say({})", "gave neither a token nor a certificate with its key"),
        ("say({'clientCertificateData': 'x'})", "gave neither a token nor a certificate with its key"),
        ("say({'token': 't', 'expirationTimestamp': 'soon'})", "that is not a time: 'soon'"),
    ],
)
def test_programs_that_fail(tmp_path: Path, code: str, said: str) -> None:
    with pytest.raises(RefusedError) as caught:
        asyncio.run(CredentialPlugin(program(tmp_path, code)).headers())
    assert said in str(caught.value)
    assert caught.value.faults[0].where == "k:1 users[u].exec"


def test_a_program_that_does_not_end(tmp_path: Path) -> None:
    plugin = CredentialPlugin(program(tmp_path, "import time; time.sleep(600)"), deadline=0.2)
    with pytest.raises(RefusedError, match="did not end within"):
        asyncio.run(plugin.headers())


def test_a_program_that_left_others_behind(tmp_path: Path) -> None:
    # They hold its standard output open.
    code = "if os.fork(): import time; time.sleep(600)\nelse: import time; time.sleep(600)"
    plugin = CredentialPlugin(program(tmp_path, code), deadline=0.2)
    with pytest.raises(RefusedError, match="did not end within"):
        asyncio.run(plugin.headers())


async def test_being_cancelled_while_it_starts(tmp_path: Path) -> None:
    plugin = CredentialPlugin(program(tmp_path, "import time; time.sleep(600)"))

    asking = asyncio.create_task(plugin.headers())
    for _ in range(3):
        await asyncio.sleep(0)
    asking.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await asking


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    spec = program(tmp_path, "", command="no-such-program", install_hint="pip install it")
    with pytest.raises(RequestError) as caught:
        asyncio.run(CredentialPlugin(spec).headers())
    assert "no-such-program cannot be started: No such file or directory" in str(caught.value)
    assert caught.value.faults[0].hint == "pip install it"


def test_a_program_that_must_talk_to_a_person(tmp_path: Path) -> None:
    # Under pytest standard input is not a terminal.
    with pytest.raises(RefusedError, match="wants to talk to a person"):
        asyncio.run(CredentialPlugin(program(tmp_path, "", interactive="Always")).headers())
