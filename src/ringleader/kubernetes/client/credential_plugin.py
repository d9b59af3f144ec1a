"""Programs that a kubeconfig names to get credentials from: ``client.authentication.k8s.io``, v1 and v1beta1.

How clouds log in (``aws eks get-token``, ``gke-gcloud-auth-plugin``, ``kubelogin``). The program prints an
``ExecCredential``; what it gives is kept until shortly before it expires, or until the server refuses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.credentials import Identity, KeyPair

API = "client.authentication.k8s.io/"
_KILLED_S = 5.0
"""How long a killed program is waited for."""
VERSIONS = (API + "v1", API + "v1beta1")


@dataclass(frozen=True, kw_only=True)
class PluginSpec:
    """What a kubeconfig says of such a program."""

    api_version: str
    command: str
    """A name on PATH, or a path; a relative path starts at the kubeconfig's folder."""
    args: Sequence[str] = ()
    environ: Mapping[str, str]
    """The program's whole environment."""
    interactive: Literal["Never", "IfAvailable", "Always"] = "IfAvailable"
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None
    """``spec.cluster`` of the program's input; ``None``: it gets none."""
    where: str = ""


class CredentialPlugin(Identity):
    """An identity that a program gives."""

    def __init__(
        self, spec: PluginSpec, *, now: Callable[[], float] = time.time, deadline: float | None = None
    ) -> None:
        """``now`` gives seconds since the epoch, ``deadline`` is in seconds (60; 300 with a person)."""
        super().__init__()
        self._spec, self._now = spec, now
        self._talks = spec.interactive != "Never" and sys.stdin is not None and sys.stdin.isatty()
        self._deadline = deadline or (300.0 if self._talks else 60.0)
        self._ends = -math.inf
        """When to ask again, in seconds since the epoch."""
        self._one_at_a_time = asyncio.Lock()

    async def headers(self) -> Mapping[str, str]:
        """Return the token's header, empty where the program gave a certificate; run it where needed."""
        async with self._one_at_a_time:
            if self._now() >= self._ends:
                self._take(await self._run())
            return self._headers

    def forget(self) -> bool:
        """Run the program again next time."""
        had, self._ends = self._ends != -math.inf, -math.inf
        return had

    def _take(self, status: Mapping[str, Any]) -> None:
        token, chain, key = (status.get(name) for name in ("token", "clientCertificateData", "clientKeyData"))
        if not token and not (chain and key):
            raise self._failed("gave neither a token nor a certificate with its key")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.certificate = (
            KeyPair(certificate=str(chain).encode(), key=str(key).encode()) if chain and key else None
        )
        self._ends = self._renewal(status.get("expirationTimestamp"))

    def _renewal(self, expires: Any) -> float:
        """Return when to ask again: half a minute before the end, or sooner for what lives short."""
        if not expires:
            return math.inf
        ends = rfc3339.seconds_of(str(expires))
        if ends is None:
            raise self._failed(f"gave an expirationTimestamp that is not a time: {expires!r}")
        return ends - min(30.0, max(0.0, (ends - self._now()) / 10))

    async def _run(self) -> Mapping[str, Any]:
        """Run the program once and return its ``status``."""
        process = await self._started()
        try:
            async with asyncio.timeout(self._deadline):
                out, err = await process.communicate()
        except TimeoutError:
            raise self._failed(f"did not end within {self._deadline:.0f} s")
        finally:
            await self._end(process)
        if process.returncode:
            said = (err or b"").decode(errors="replace").strip()
            raise self._failed(f"ended with exit code {process.returncode}" + (f": {said}" if said else ""))
        return self._status(out)

    async def _started(self) -> asyncio.subprocess.Process:
        """Start the program. asyncio cannot be cancelled while it does so: it would wait for good."""
        starting = asyncio.ensure_future(self._start())
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await self._end(await starting)
            raise

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """End a program that has not ended, and what it started."""
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if self._talks:
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILLED_S):
                await process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        spec = self._spec
        if spec.interactive == "Always" and not self._talks:
            what = f"{spec.command} wants to talk to a person, and standard input is not a terminal"
            raise RefusedError(Fault(where=spec.where, what=what))
        told = {"interactive": self._talks, **({"cluster": spec.cluster} if spec.cluster is not None else {})}
        info = {"apiVersion": spec.api_version, "kind": "ExecCredential", "spec": told}
        try:
            return await asyncio.create_subprocess_exec(
                spec.command,
                *spec.args,
                env={**spec.environ, "KUBERNETES_EXEC_INFO": json.dumps(info)},
                stdin=None if self._talks else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if self._talks else asyncio.subprocess.PIPE,
                # A session of its own can be ended as a whole; a terminal is only for ours.
                start_new_session=not self._talks,
            )
        except OSError as error:
            what = f"the credentials program {spec.command} cannot be started: {error.strerror}"
            hint = spec.install_hint.strip() or f"install {spec.command}, or choose another context"
            raise RequestError(Fault(where=spec.where, what=what, hint=hint))

    def _status(self, out: bytes) -> Mapping[str, Any]:
        try:
            answer = json.loads(out)
        except ValueError:
            raise self._failed("printed something that is not JSON")
        if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
            raise self._failed("printed something that is not an ExecCredential")
        if answer.get("apiVersion") != self._spec.api_version:
            said = answer.get("apiVersion")
            raise self._failed(f"speaks {said}, and the kubeconfig says {self._spec.api_version}")
        status = answer.get("status")
        return status if isinstance(status, dict) else {}

    def _failed(self, what: str) -> RefusedError:
        return RefusedError(
            Fault(where=self._spec.where, what=f"credentials program {self._spec.command} {what}")
        )


def command_of(word: str, folder: Path) -> str:
    """Return what to start: a bare name is looked up on PATH, a relative path begins at the kubeconfig."""
    return str(folder / word) if os.sep in word else word
