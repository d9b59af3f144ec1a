"""The facts of this very machine, against what the shell's own tools say of it.

Only values that stay the same between two readings are compared, and a tool that is missing is skipped.
"""

import os
import re
import resource
import shutil
import subprocess

import pytest

from ringleader.agents.hardware import cpu_list
from ringleader.fabric.facts import UNLIMITED
from ringleader.fabric.readers import libraries, read_host
from ringleader.fabric.readers.sysfs_files import Files

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def facts():
    return read_host(seconds=60.0)


def said(*argv: str) -> str:
    if shutil.which(argv[0]) is None:
        pytest.skip(f"no {argv[0]} here")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")} | {
        "LC_ALL": "C"
    }
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=60)
    if done.returncode:
        pytest.skip(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout.strip()


def test_uname_nproc_and_limits(facts):
    assert not [one for one in facts.unreadable if not one.path.startswith("/")]
    for option, field in (("-r", "kernel"), ("-n", "hostname"), ("-m", "architecture")):
        assert getattr(facts, field) == said("uname", option)
    assert (facts.process.cpus, facts.process.uid) == (int(said("nproc")), int(said("id", "-u")))
    assert facts.memory == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size, target = said("df", "-B1", "--output=size,target", "/dev/shm").splitlines()[1].split()
    assert target != "/dev/shm" or facts.shm_size == int(size)
    for name in ("memlock", "nofile", "stack", "core", "nproc", "as"):
        found = facts.process.limits[name]
        known = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))
        assert [found.soft, found.hard] == [
            UNLIMITED if one == resource.RLIM_INFINITY else one for one in known
        ]
    nodes = dict(re.findall(r"^NUMA node(\d+) CPU\(s\):\s+(\S+)$", said("lscpu"), re.MULTILINE))
    numa = {one.number: cpu_list(one.cpus) for one in facts.numa_nodes if one.cpus}
    assert numa == {int(node): cpu_list(listing) for node, listing in nodes.items()}


def test_loader_cache():
    lines = said("ldconfig", "-p").splitlines()
    listed: dict[str, set[str]] = {}
    for line in lines:
        entry = re.match(r"\s+(\S+) \(.*?\) => (\S+)$", line)
        if entry:
            listed.setdefault(entry[1], set()).add(entry[2])
    files = Files()
    found = libraries.cached(files.data(libraries.CACHE, limit=libraries.LARGEST_CACHE), os.uname().machine)
    assert found
    assert not {name: path for name, path in found.items() if path not in listed.get(name, ())}
    for one in libraries.read(files, {}):
        if one.name in found:
            assert one.path == found[one.name]
