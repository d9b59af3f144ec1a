"""How many processors a process may keep busy: files of real systems, several containers, a real group."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.commands import finished
from tests.control_groups import control_group

from ringleader.agents import usable_cores
from ringleader.agents.usable_cores import CpuLimit, RankProcessors, granted, oversubscribed, quota

SYSTEMD_V1 = """\
12:pids:/user.slice/user-1000.slice
5:cpu,cpuacct:/user.slice
1:name=systemd:/user.slice/user-1000.slice/session-1.scope
0::/user.slice/user-1000.slice/session-1.scope"""
DOCKER_V1 = "4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc"
SLICES = "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-abc.scope"
GROUP = "sys/fs/cgroup/"


def v1(mount, micros, period=100_000):
    """Both files of a group of version 1."""
    place = GROUP + mount
    return {f"{place}/cpu.cfs_quota_us": f"{micros}\n", f"{place}/cpu.cfs_period_us": f"{period}\n"}


@pytest.mark.parametrize(
    ("membership", "files", "limit"),
    [
        ("", {}, None),
        # version 2: a container's own root, on the host without and with a limit, a fraction
        ("0::/", {GROUP + "cpu.max": "200000 100000\n"}, 2.0),
        ("0::/", {GROUP + "cpu.max": "max 100000\n"}, None),
        ("0::/", {GROUP + "cpu.max": "150000 100000\n"}, 1.5),
        # the first process of a host is in the root group, which has no file of limits
        ("0::/init.scope", {GROUP + "init.scope/cpu.max": "max 100000\n"}, None),
        # a container that was started in the host's namespace of control groups sees the path outside of it
        ("0::/../../system.slice/docker-abc.scope", {GROUP + "cpu.max": "300000 100000\n"}, 3.0),
        # the tightest of a path's groups counts, wherever it is
        (
            SLICES,
            {
                GROUP + "kubepods.slice/cpu.max": "6400000 100000\n",
                GROUP + "kubepods.slice/kubepods-pod1.slice/cpu.max": "300000 100000\n",
                GROUP + SLICES[4:] + "/cpu.max": "400000 100000\n",
            },
            3.0,
        ),
        # version 1: systemd's slice, another period, a container that sees its own root under the host's path
        (SYSTEMD_V1, v1("cpu,cpuacct", -1) | v1("cpu,cpuacct/user.slice", 400_000), 4.0),
        (SYSTEMD_V1, v1("cpu,cpuacct/user.slice", 75_000, 50_000), 1.5),
        (DOCKER_V1, v1("cpu,cpuacct", 150_000), 1.5),
        (DOCKER_V1, v1("cpu/docker/abc", 50_000), 0.5),
        # hybrid: both are mounted, and the limit may be in either
        (SYSTEMD_V1, v1("cpu,cpuacct/user.slice", -1) | {GROUP + "unified/cpu.stat": "usage_usec 1"}, None),
        ("0::/job", {GROUP + "unified/job/cpu.max": "100000 100000\n"}, 1.0),
    ],
)
def test_limits_of_real_systems(tmp_path, membership, files, limit):
    for name, content in {"proc/self/cgroup": membership, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert usable_cores.cpu_limit(tmp_path) == limit


def rank(*cpus, **limits):
    """A rank that may run on some CPUs, with limits of groups by name."""
    numbers = {"node": 1, "pod": 2, "first": 3, "second": 4}
    return RankProcessors(
        frozenset(cpus), tuple(CpuLimit(numbers[name], cpus) for name, cpus in limits.items())
    )


NODE = tuple(range(64))


def test_more_ranks_than_processors():
    for ranks, too_many in (
        ([rank(*NODE)] * 64, False),
        ([rank(*NODE)] * 65, True),
        # a Pod with cpu: 2 on a node of 64
        ([rank(*NODE, pod=2)] * 2, False),
        ([rank(*NODE, pod=2)] * 3, True),
        ([rank(*NODE, pod=1.5)] * 2, True),
        # each container brings its own, those above are shared
        ([rank(*NODE, first=1), rank(*NODE, second=1)], False),
        ([rank(*NODE, first=1)] * 2 + [rank(*NODE, second=2)], True),
        ([rank(*NODE, first=1, node=1), rank(*NODE, second=1, node=1)], True),
        ([rank(*NODE, first=1)] + [rank(*NODE)] * 10, False),
        # bound ranks: two on one CPU are too many although another is free
        ([rank(0), rank(0)], True),
        ([rank(0, 1), rank(0)], False),
        ([rank(0), rank(0), rank(0, 1, 2, 3)], True),
    ):
        assert oversubscribed(ranks) is too_many


@given(some.lists(some.frozensets(some.integers(0, 4), min_size=1), min_size=1, max_size=5))
def test_ranks_for_which_there_is_a_place_each_are_not_too_many(sets):
    """What is said to be too many cannot be matched: no rank gets its own CPU."""

    def matched(rest, taken):
        return not rest or any(matched(rest[1:], taken | {cpu}) for cpu in rest[0] - taken)

    if oversubscribed([RankProcessors(one, ()) for one in sets]):
        assert not matched(sets, frozenset())


@pytest.mark.process
def test_what_the_kernel_grants_a_real_group():
    """A process in a group with 1.5 CPUs reads that, and nobody outside of it does."""
    with control_group(1.5) as group:
        program = (
            f"import os; open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
            "from ringleader.agents import usable_cores as p\n"
            "print(p.cpu_limit(), p.usable_cpus(), [limit.group for limit in p.cpu_limits()])"
        )
        done = finished([sys.executable, "-c", program], timeout=60, check=True)
        limit, usable, groups = done.stdout.split(maxsplit=2)
        assert (float(limit), int(usable)) == (1.5, 1)
        assert group.stat().st_ino in map(int, groups.strip().strip("[]").split(", "))
        assert group.stat().st_ino not in {one.group for one in usable_cores.cpu_limits()}


def test_limits_are_granted_in_whole_processors(tmp_path):
    for words in ("", "max", "max 100000", "100000", "100000 0", "0 100000", "a b", "-1 5"):
        assert quota(words) is None
    for limit, count in ((None, 64), (2.9, 2), (0.5, 1), (80.0, 64)):
        assert granted(64, limit) == count
    for name, cpus in (("pod", 4), ("pod/app", 2)):
        (tmp_path / GROUP / name).mkdir(parents=True)
        (tmp_path / GROUP / name / "cpu.max").write_text(f"{cpus}00000 100000")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/pod/app")
    groups = {
        (tmp_path / GROUP / name).stat().st_ino: cpus for name, cpus in (("pod", 4.0), ("pod/app", 2.0))
    }
    assert set(usable_cores.cpu_limits(tmp_path)) == {CpuLimit(*one) for one in groups.items()}
