"""``python -I -S …/ringleader/agents/host_agent.py``: starts a host agent, one for each host of a job.

The launcher runs it over ssh, or as a child on its own machine, and writes one line of JSON to its standard
input. It is run by path, with no site-packages, as rank agents are (``rank_agent.py``). Once connected it
detaches itself, so that whoever started it sees exit code 0; else it says why on standard error. Then it is
two processes, as a rank's agent is:

    outer (its own session) → inner (``host_agent_loop``) → fork server, rank agents → ranks

The outer one does nothing but wait. Where the inner one is killed it inherits what that leaves behind, gives
rank agents, which the kernel tells, time to end their ranks, and kills the rest. Where the outer one is
killed the inner one is notified, and ends everything.
"""

from __future__ import annotations

import json
import os
import sys
import time

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
if _ROOT not in sys.path:  # run by path
    sys.path.append(_ROOT)
from ringleader.agents import job_directory, process_tree, rank_identity, unix_messages  # noqa: E402
from ringleader.agents.elastic.commit_memory import LIMIT_VARIABLE  # noqa: E402
from ringleader.agents.elastic.forked_rank_agents import OUTER_GONE, WATCHED  # noqa: E402
from ringleader.agents.elastic.host_agent_loop import LEFT_SECONDS, HostAgent, HostAgentConfig  # noqa: E402
from ringleader.agents.job_directory import JobDirectory  # noqa: E402
from ringleader.agents.light_imports import Mapping, signal  # noqa: E402
from ringleader.agents.protocol import LauncherConnection, LauncherUnreachableError, connect  # noqa: E402
from ringleader.agents.rank_agent_guard import make_sure_open  # noqa: E402

FAILED = 1
LONGEST_CONFIG = 64 * 1024
PAUSE_SECONDS = 0.02
BEFORE_US_SECONDS = LEFT_SECONDS + 4.0
"""For the agent before us to end, where its host was left out and returns at once."""


def run(environ: Mapping[str, str]) -> int:
    """Start the agent; return the exit code for whoever started us, once the agent serves."""
    for fd in (0, 1, 2):
        make_sure_open(fd)
    try:
        config = HostAgentConfig(json.loads(_line(0)))
        if config.commit_limit:
            os.environ[LIMIT_VARIABLE] = config.commit_limit
        launcher = connect(config.control, config.token)
        directory = _directory(config)
    except LauncherUnreachableError as error:
        return _failed(str(error))
    except (ValueError, KeyError, TypeError) as error:
        return _failed(f"no configuration on standard input: {error!r}")
    except OSError as error:
        return _failed(f"{error.filename or 'the job directory'}: {error.strerror or error}")
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        if os.fork():
            return 0
        _detach()
        return _outer(config, launcher, directory, environ)
    except OSError as error:
        return _failed(f"cannot start a process: {error.strerror} (see `ulimit -u`)")


def _failed(words: str) -> int:
    sys.stderr.write(f"ringleader host agent: {words}\n")
    return FAILED


def _line(fd: int) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < LONGEST_CONFIG and (more := os.read(fd, 4096)):
        data += more
    return data


def _directory(config: HostAgentConfig) -> JobDirectory:
    """Make this host's part of the job's directory. Raises OSError, also where an agent is there already."""
    here = rank_identity.host_identity()
    directory = JobDirectory(config.directory, rank_identity.host_key(here))
    until = time.monotonic() + BEFORE_US_SECONDS
    while _is_served(unix_messages.agent_socket(directory.path, config.number)):
        if time.monotonic() > until:
            what = "a host agent of this job runs on this machine already by that number"
            raise OSError(0, what, directory.path)
        time.sleep(PAUSE_SECONDS)
    job_directory.sweep(directory.job.rpartition("/")[0], directory.key)
    directory.make_backing()
    return directory


def _is_served(path: str) -> bool:
    """Say whether somebody listens at a socket."""
    try:
        unix_messages.connected_to(path, seconds=BEFORE_US_SECONDS).close()
    except (BlockingIOError, TimeoutError):
        return True  # whoever listens has no time
    except OSError:
        return False
    return True


def _detach() -> None:
    """Become our own session, without the streams of whoever started us."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def _outer(
    config: HostAgentConfig, launcher: LauncherConnection, directory: JobDirectory, environ: Mapping[str, str]
) -> int:
    """Start the inner process, wait for its end, and leave nothing behind."""
    process_tree.become_subreaper()
    outer = os.getpid()
    inner = os.fork()
    if inner == 0:
        os._exit(_inner(outer, config, launcher, directory, environ))
    launcher.close()
    _wait_for(inner)
    until = time.monotonic() + LEFT_SECONDS
    while time.monotonic() < until and not process_tree.childless():
        process_tree.reap()
        time.sleep(PAUSE_SECONDS)
    process_tree.kill_below(outer)
    directory.leave()
    return 0


def _wait_for(inner: int) -> None:
    """Reap whatever is reparented to us until the inner process ends; signals are passed on to it."""
    while True:
        came = signal.sigwaitinfo(WATCHED)
        if came.si_signo != signal.SIGCHLD:
            process_tree.send([inner], signal.SIGUSR1 if came.si_signo == signal.SIGUSR1 else signal.SIGTERM)
        if inner in dict(process_tree.reap()):
            return


def _inner(
    outer: int,
    config: HostAgentConfig,
    launcher: LauncherConnection,
    directory: JobDirectory,
    environ: Mapping[str, str],
) -> int:
    """Serve the launcher; return the exit code."""
    try:
        os.setsid()
        process_tree.become_subreaper()
        process_tree.die_with_parent(OUTER_GONE, outer)
        HostAgent(config, launcher, directory, environ).serve()
        return 0
    except Exception as error:
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
        launcher.say(do="host_failed", host=config.host, why=f"{type(error).__name__}: {error} ({where})")
        return FAILED
    finally:
        process_tree.kill_below(os.getpid())
        process_tree.send([outer], signal.SIGCONT)  # it has to see our end, also where it was stopped
        if os.getppid() != outer:  # which would have been the last to leave
            directory.leave()


def main() -> None:
    """Start it and leave."""
    code = run(os.environ)
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
