"""The script that each container runs. Pure.

It needs a POSIX shell, ssh, sshd and ``timeout`` of the image. In mpihead it first waits until every node
lets us in, and says whom it waits for; what it has waited for in vain ends the container with code 3.
"""

from __future__ import annotations

import shlex

from ringleader.render.compose.application import Application, Container
from ringleader.render.compose.request import FOLDER

SSHD = "/usr/sbin/sshd"
TRY_SECONDS = 20
"""Given to one login: a login script that hangs must not hold up the others."""


def ready_file(application: Application) -> str:
    """Return the path of the file in mpihead that says that all nodes have answered."""
    return f"/tmp/ringleader-{application.name}.ready"


def start_script(application: Application, container: Container) -> str:
    """Return the text of the script."""
    waiting = _waiting(application) if container is application.head and application.nodes else ""
    ready = f": >{ready_file(application)}\n" if container is application.head else ""
    return f"""\
#!/bin/sh
# Starts the sshd of {container.service}.
set -eu

say() {{
    echo "{container.service}: $*" >&2
}}

if ! id -un >/dev/null 2>&1; then
    say "user $(id -u) has no account in this image, and sshd lets in accounts only"
    exit 2
fi
for program in ssh timeout {SSHD}; do
    if ! command -v "$program" >/dev/null; then
        say "there is no $program in this image"
        exit 2
    fi
done
if [ "$(id -u)" = 0 ]; then
    mkdir -p /run/sshd
fi
if ! {SSHD} -t -f {FOLDER}/sshd_config; then
    say "sshd cannot start as user $(id -u): see the lines above"
    exit 2
fi
{waiting}{ready}exec {SSHD} -D -e -f {FOLDER}/sshd_config
"""


def _waiting(application: Application) -> str:
    names = " ".join(shlex.quote(one.name) for one in application.nodes)
    return f"""
rm -f {ready_file(application)}
end=$(($(date +%s) + {application.wait}))
missing=
set -- {names}
for node; do
    told=
    until answer=$(timeout {TRY_SECONDS} ssh "$node" true 2>&1 </dev/null); do
        if [ "$(date +%s)" -ge "$end" ]; then
            say "no answer from $node within {application.wait} s: $answer"
            missing="$missing $node"
            break
        fi
        if [ -z "$told" ]; then
            say "waiting for $node: $answer"
            told=yes
        fi
        sleep 1
    done
done
if [ -n "$missing" ]; then
    say "given up, without:$missing"
    exit 3
fi
say "all nodes answer"
"""
