"""Into a host, like its console: works while its link is cut, and needs no sshd."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from ringleader.agents.usable_cores import usable_cpus
from ringleader.errors import LabError
from ringleader.lab import kernel_state, requirements
from ringleader.lab.config_files import session_variables
from ringleader.lab.rootfs_inspection import rootfs_facts
from ringleader.lab.saved_state import Lab, LabHost

_TALK = ("TERM", "COLORTERM", "LANG", "LANGUAGE", "TZ")
_IN_DIRECTORY = 'cd "$1" 2>/dev/null || cd /; shift; exec "$@"'


def environment(lab: Lab, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's environment with what is a host's own.

    On a host with a root of its own the machine's PATH and the like mean nothing: it has that tree's
    environment, and of the caller's only what says how to talk to the caller.
    """
    own = session_variables(lab.spec, cores=usable_cpus())
    if lab.spec.tree is None:
        return {**environ, **own}
    kept = {name: value for name, value in environ.items() if name in _TALK or name.startswith("LC_")}
    facts = rootfs_facts(lab.spec.tree)
    account = {"HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": facts.shell}
    return {**kept, **account, **dict(facts.environment), "PATH": facts.search_path, **own}


def shell_of(lab: Lab, environ: Mapping[str, str]) -> str:
    """Return the program that ``lab shell`` opens."""
    return rootfs_facts(lab.spec.tree).shell if lab.spec.tree else environ.get("SHELL", "/bin/sh")


def argv_on(lab: Lab, host: LabHost, command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the argv that runs ``command`` on the host, here; LabError where the host is dead."""
    pid = kernel_state.first_process(host.namespace)
    if pid is None:
        raise LabError("this host is dead", where=host.name, hint=f"ringleader lab heal {host.name}")
    here = ("sh", "-c", _IN_DIRECTORY, "sh", os.getcwd())  # noqa: PTH109
    if lab.spec.kernel:  # nothing enters another kernel but a session
        terminal = ("-t",) if sys.stdin.isatty() else ()
        return ("ssh", *terminal, "-F", lab.ssh_config, host.name, shlex.join((*here, *command)))
    # The environment to come may have another PATH than the machine.
    program = requirements.find("nsenter", os.environ.get("PATH", "")) or "nsenter"
    namespaces = ("--mount", "--uts", "--ipc", "--net", "--pid")
    return (program, "--target", str(pid), *namespaces, *here, *command)


def exec_all(
    lab: Lab, command: tuple[str, ...], environ: Mapping[str, str]
) -> tuple[tuple[LabHost, subprocess.CompletedProcess[bytes]], ...]:
    """Run the command on all hosts side by side; return each host's output (both streams) and exit code."""
    argvs = [(host, argv_on(lab, host, command)) for host in lab.hosts]

    def run(pair: tuple[LabHost, tuple[str, ...]]) -> tuple[LabHost, subprocess.CompletedProcess[bytes]]:
        host, argv = pair
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, env=environment(lab, environ), check=False
        )
        return host, done

    with ThreadPoolExecutor(max_workers=32) as pool:
        return tuple(pool.map(run, argvs))
