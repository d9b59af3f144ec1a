"""What a rank's agent gathers for the proof of the transport: counters, and what the rank's libraries use.

Nothing here breaks or delays a job: what goes wrong is reported as the reason for missing evidence. NCCL and
UCX say in their logs what they use. Logs are asked for where the user asked for none: a library's variables
are only set where none of them is, then the log goes to a file of the job's directory and goes with it. A
file that the user has named for it is read, and left alone. A rank that uses verbs has mapped the files of
RDMA devices. Counters are in `traffic_counters`, those of connections in `connection_counters`, what the
kernel says while the rank runs in `kernel_log`.
"""

from __future__ import annotations

import os
import stat
import time

from ringleader.agents import process_tree, sysfs
from ringleader.agents.light_imports import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, socket, suppress

if TYPE_CHECKING:
    from ringleader.agents.connection_counters import Connections
    from ringleader.agents.kernel_log import HostWatch
    from ringleader.agents.protocol import LauncherConnection

FILE_VARIABLES = {"nccl": "NCCL_DEBUG_FILE", "ucx": "UCX_LOG_FILE"}
LEVEL_VARIABLES = {"nccl": "NCCL_DEBUG", "ucx": "UCX_LOG_LEVEL"}
DIRECTORY = "{directory}"
"""Replaced in a variable's value by this host's part of the job's directory."""
MOST_FILES = 32
NVIDIA = "/dev/nvidiactl"
"""Exists where NVIDIA's driver is loaded, and this container may use it."""
MOST_READ = 4 * 1024 * 1024
"""Bytes of one file; what describes transports is at its beginning."""
MOST_PENDING = 1024 * 1024
"""Bytes on their way to the launcher beyond which a sample is left out: it reads slowly."""
WATCH_SECONDS = 1.0
"""Between two looks at the kernel's log, where no samples are asked for."""
MOST_LINES, MOST_BYTES = 2000, 128 * 1024
"""What is sent to the launcher of one rank and library."""
_TELLING = {
    "nccl": (
        *("NET/", " via ", "sing network", "NCCL version", "GPU Direct", "Connected all", "Init COMPLETE"),
        *("NCCL WARN", "set by environment", "plugin", "P2P", "Bootstrap"),
    ),
    "ucx": ("cfg#", "ep_cfg[", " WARN ", " ERROR ", " FATAL ", "INFO  Version"),
}
"""What a line must have one of."""
_VERBS = "/dev/infiniband/uverbs"
_GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")
_FOR_THE_USER = (" WARN ", " ERROR ", " FATAL ")
"""Lines of UCX that it would have printed, had its log not been asked for."""


class RankEvidence:
    """From just before the rank's start to just after its end."""

    def __init__(self, control: str = "") -> None:
        """Gather nothing, until the launcher asks for it. ``control``: its addresses, each with its port."""
        self.root = self.rank = 0
        """The process that all ranks of this host are below, and the rank's."""
        ports = [entry.rpartition(":")[2] for entry in control.split(",")]
        self._control = frozenset(int(port) for port in ports if port.isdigit())
        self._counters: dict[str, Any] | None = None
        self._connections: Connections | None = None
        self._verbs: set[str] = set()
        self._by_memory: set[str] = set()
        self._logs: LibraryLogs | None = None
        self._missing: list[str] = []
        self._patience = 1.0
        self._began = self._every = 0.0
        self.sample_at: float | None = None
        """When counters and the kernel's log are due (``time.monotonic``); ``None``: neither ever is."""
        self.look_at: float | None = None
        """When connections are due to be looked at."""
        self._gpus: Any = None
        self._watch: HostWatch | None = None

    def prepare(self) -> None:
        """Load what reads counters, while the other agents are still on their way, and follow connections."""
        from ringleader.agents import kernel_log, traffic_counters  # noqa: F401
        from ringleader.agents.connection_counters import Connections

        if self._connections is None:
            self._connections = Connections(self._processes, self._control)
            self.look_at = self._connections.look_at

    def _processes(self) -> set[int]:
        """Return the job's processes on this host; ranks may be children of a fork server."""
        table = process_tree.parents()
        roots = {self.root, table.get(self.rank, self.root)}
        return {pid for root in roots for pid in (root, *process_tree.below(root, table))}

    @property
    def fd(self) -> int:
        """What is readable when connections have ended, see ``collect``; -1: nothing."""
        return -1 if self._connections is None else self._connections.fd

    def collect(self) -> None:
        """Count connections that have ended."""
        if self._connections is not None:
            self._connections.collect()

    def look(self) -> None:
        """See which connections the job's processes have."""
        if self._connections is not None:
            self._connections.look(self._patience)
            self.look_at = self._connections.look_at

    def inspect(self, paths: set[str]) -> None:
        """Note which RDMA devices, GPUs and MPI the rank has mapped."""
        self._verbs |= {path.rpartition("/")[2] for path in paths if path.startswith(_VERBS)}
        mapped = process_tree.mpi_libraries(paths) | {path for path in paths if path.startswith(_GPUS)}
        self._by_memory |= {path.rpartition("/")[2] for path in mapped}

    def begin(self, wanted: Mapping[str, Any], env: dict[str, str], directory: str) -> None:
        """Read the counters and ask libraries for logs, as far as ``wanted`` says; may add to ``env``.

        ``wanted``: ``counters``, whether this agent reads those of its host, ``patience`` (how many times
        longer than usual that may take), ``sample_seconds``, between two samples of the counters (0: none),
        ``kernel_log``, the file of it that the user names, and ``logs``, see `LibraryLogs`.
        """
        try:
            if wanted.get("logs"):
                self._logs = LibraryLogs(wanted["logs"], directory)
                self._logs.add_to(env, time.time())
            if wanted.get("counters"):
                from ringleader.agents import kernel_log, traffic_counters

                self.prepare()
                self._patience = float(wanted.get("patience", 1.0))
                self._counters = traffic_counters.snapshot(patience=self._patience)
                self._began, self._every = time.monotonic(), float(wanted.get("sample_seconds", 0.0))
                self._watch = kernel_log.HostWatch(str(wanted.get("kernel_log") or ""))
                if self._every > 0 or self._watch.is_needed:
                    self.sample_at = self._began + (0.0 if self._every > 0 else WATCH_SECONDS)
                if self._every > 0 and os.path.exists(NVIDIA):  # noqa: PTH110
                    from ringleader.agents.gpu_samples import GpuSamples

                    self._gpus = GpuSamples()
        except Exception as error:
            self._missing.append(f"before the start: {type(error).__name__}: {error}")

    def sample(self, launcher: LauncherConnection, *, at_end: bool = False) -> None:
        """Send what the kernel has reported since, and if asked for, what ports have carried by now."""
        if self.sample_at is None:
            return
        now, every = time.monotonic(), self._every or WATCH_SECONDS
        self.sample_at = max(self.sample_at + every, now + every / 2)
        if launcher.pending >= MOST_PENDING:
            return
        try:
            from ringleader.agents import traffic_counters

            if self._watch is not None and (said := self._watch.take(at_end=at_end)):
                launcher.say(do="kernel", **said)
            if not self._every:
                return
            gpus = {} if self._gpus is None else self._gpus.take()
            found = {**traffic_counters.sample(), **gpus}
        except Exception as error:
            self.sample_at = None
            self._missing.append(f"samples: {type(error).__name__}: {error}")
            return
        launcher.say(do="host_sample", at=round(now - self._began, 3), **found)

    def end(self) -> tuple[dict[str, Any], bytes]:
        """Return what was found, empty where there is nothing to tell, and lines for the rank's stderr."""
        found: dict[str, Any] = {}
        for_the_user = b""
        try:
            if self._counters is not None:
                from ringleader.agents import traffic_counters

                after = traffic_counters.snapshot(patience=self._patience)
                found["before"], found["after"] = self._counters, after
            if self._connections is not None:
                found["connections"] = self._connections.end(self._patience)
            if self._verbs:
                devices = (f"/sys/class/infiniband_verbs/{name}/ibdev" for name in sorted(self._verbs))
                found["verbs"] = [name for name in map(sysfs.text, devices) if name]
            if self._by_memory:
                found["by_memory"] = sorted(self._by_memory)[:MOST_FILES]
            if self._logs is not None and (logs := self._logs.read()):
                found["logs"] = logs
                for_the_user = "".join(f"{line}\n" for line in self._logs.for_the_user(logs)).encode()
        except Exception as error:
            self._missing.append(f"after the end: {type(error).__name__}: {error}")
        if self._missing:
            found["missing"] = "; ".join(self._missing)
        return found, for_the_user


class LibraryLogs:
    """The logs of one rank."""

    def __init__(self, wanted: Mapping[str, Mapping[str, str]], directory: str, root: str = "/") -> None:
        """``wanted``: library → the variables that have it write a log into our ``directory``."""
        self._wanted = wanted
        self._directory = directory
        self._root = root.rstrip("/")
        self._ours: dict[str, str] = {}
        self._named: dict[str, str] = {}
        self._since = 0.0

    def add_to(self, env: dict[str, str], now: float) -> None:
        """Set the variables of each library that has none of them; ``now``: Unix time."""
        self._since = now
        for library, variables in self._wanted.items():
            if env.get(FILE_VARIABLES[library]):
                self._named[library] = env[FILE_VARIABLES[library]]
            elif not self._is_set(library, variables, env):
                ours = {name: value.replace(DIRECTORY, self._directory) for name, value in variables.items()}
                env.update(ours)
                self._ours[library] = ours[FILE_VARIABLES[library]]

    def _is_set(self, library: str, variables: Mapping[str, str], env: Mapping[str, str]) -> bool:
        if any(name in env for name in variables):
            return True
        if library == "ucx":  # a host without RDMA has nothing to tell
            return not os.path.isdir(f"{self._root}/sys/class/infiniband")  # noqa: PTH112
        files = (env.get("NCCL_CONF_FILE", ""), f"{env.get('HOME', '')}/.nccl.conf", "/etc/nccl.conf")
        lines = [line for name in files if name for line in _lines(f"{self._root}{name}", 65536)]
        return any(line.lstrip().startswith(LEVEL_VARIABLES[library]) for line in lines)

    def read(self) -> dict[str, dict[str, Any]]:
        """Return what the logs tell: library → ``lines`` and how many were ``left_out``."""
        found = {}
        for library in self._wanted:
            pattern = self._ours.get(library) or self._named.get(library)
            lines, left_out, size = list[str](), 0, 0
            for path in self._files(pattern) if pattern else ():
                for line in _lines(path, MOST_READ):
                    if not any(word in line for word in _TELLING[library]):
                        continue
                    size += len(line)
                    if len(lines) < MOST_LINES and size <= MOST_BYTES:
                        lines.append(line)
                    else:
                        left_out += 1
            if lines:
                found[library] = {"lines": lines, "left_out": left_out}
        return found

    def for_the_user(self, found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
        """Yield warnings of UCX that went to our file and not to the rank's output."""
        if "ucx" in self._ours:
            lines: Iterable[str] = found.get("ucx", {}).get("lines", ())
            yield from (line for line in lines if any(word in line for word in _FOR_THE_USER))

    def _files(self, pattern: str) -> list[str]:
        """Return regular files that a name with ``%h`` and ``%p`` stands for, written since the start.

        Where the name has the host's, NCCL takes it up to its first dot, UCX the whole.
        """
        directory, _, name = f"{self._root}{pattern}".rpartition("/")
        before, wildcard, after = name.partition("%")
        after = after.rpartition("%")[2][1:] if "%" in after else after[1:]
        host = socket.gethostname().partition(".")[0] if "%h" in name else ""
        found = []
        with suppress(OSError):
            for entry in sorted(os.listdir(directory)):  # noqa: PTH208
                path = f"{directory}/{entry}"
                fits = entry.startswith(before) and entry.endswith(after) if wildcard else entry == before
                if fits and host in entry and self._is_new(path):
                    found.append(path)
        return found[:MOST_FILES]

    def _is_new(self, path: str) -> bool:
        with suppress(OSError):
            status = os.lstat(path)
            return stat.S_ISREG(status.st_mode) and status.st_mtime >= self._since - 1
        return False


def _lines(path: str, most: int) -> list[str]:
    """Return a file's lines; none where it cannot be read or is not a regular file."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return file.read(most).decode(errors="replace").splitlines()
    return []
