"""How to reach an API server and prove who we are: kubeconfig, or the account of the Pod that we run in.

As ``kubectl`` does it: ``--kubeconfig``, else the files of KUBECONFIG, else ``~/.kube/config``, else the
service account that is mounted into the Pod.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ringleader.errors import Fault, RequestError
from ringleader.kubernetes.client.credentials import Credentials, TokenFile
from ringleader.kubernetes.client.kubeconfig_files import choose, files_of, read
from ringleader.kubernetes.client.tls import Trust

_ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"
"""Where the kubelet mounts a Pod's service account."""


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
    from ringleader.kubernetes.client.kubeconfig_credentials import credentials_of

    return credentials_of(choose(config, context), environ)


def in_cluster(environ: Mapping[str, str], root: Path = Path("/")) -> Credentials | None:
    """Return the account of the Pod that we run in; ``None`` where this is not a Pod."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    folder = root / _ACCOUNT
    if not host or not port or not (folder / "token").is_file():
        return None
    authority = folder / "ca.crt"
    namespace = environ.get("POD_NAMESPACE", "")
    if not namespace and (folder / "namespace").is_file():
        namespace = (folder / "namespace").read_text(encoding="utf-8").strip()
    return Credentials(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        identity=TokenFile(folder / "token"),
        trust=Trust(
            authority=authority.read_text(encoding="utf-8") if authority.is_file() else "",
            where=str(authority),
        ),
        namespace=namespace or "default",
        context="in-cluster",
    )


def _nowhere(kubeconfig: str | None, environ: Mapping[str, str]) -> Fault:
    """Say where a cluster was looked for."""
    hint = "give --kubeconfig FILE, or set KUBECONFIG"
    if kubeconfig:
        return Fault(where="--kubeconfig", what=f"{kubeconfig} names no cluster", hint=hint)
    if listed := environ.get("KUBECONFIG"):
        looked = f"KUBECONFIG={listed}"
    else:
        looked = f"KUBECONFIG is not set, {environ.get('HOME', '~')}/.kube/config"
    what = f"no cluster is configured: {looked} is not there or empty, and this is not a Pod"
    return Fault(where="kubeconfig", what=what, hint=hint)
