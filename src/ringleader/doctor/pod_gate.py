"""The gate in a Pod: the init container of ``ringleader/check``, which fails if its node has a fault.

`host_gate` compares hosts; a Pod sees one node, so only what is a fault of one node by itself counts.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from ringleader.doctor.host_gate import OF_HOSTS, READ_SECONDS, fault_of
from ringleader.doctor.judgement import host_results
from ringleader.fabric.check_result import CheckResult, Verdict
from ringleader.fabric.readers import read_host
from ringleader.kubernetes.objects.node_check import NODE


def checked_node(environ: Mapping[str, str]) -> tuple[bool, str]:
    """Read this host within `READ_SECONDS`, and return what `verdict` says of it."""
    node = environ.get(NODE) or socket.gethostname()
    return verdict(node, host_results(read_host(seconds=READ_SECONDS, log="")))


def verdict(node: str, results: Sequence[CheckResult]) -> tuple[bool, str]:
    """Return whether a node may be used, and why not, or what was looked at."""
    own = [one for one in results if one.id.startswith(OF_HOSTS) and not one.cause]
    bad = [one for one in own if one.verdict is Verdict.FAIL]
    if bad:
        fault = fault_of(node, bad)
        return False, f"node {node}: {fault.what}" + (f" → {fault.hint}" if fault.hint else "")
    skipped = [f"{one.id} was skipped: {one.seen}" for one in own if one.verdict is Verdict.SKIP]
    seen = dict.fromkeys(one.id for one in own if one.verdict is not Verdict.SKIP)
    return True, "\n".join([f"node {node}: no fault by {', '.join(seen) or 'any check'}", *skipped])
