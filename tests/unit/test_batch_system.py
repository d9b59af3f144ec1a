from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.plan.batch_system import (
    MOST_HOSTS,
    Allocation,
    expand_counts,
    expand_nodes,
    find_allocation,
    slurm_job_id,
)
from ringleader.plan.job import Host


def no_file(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def hosts(*pairs: tuple[str, int]) -> tuple[Host, ...]:
    return tuple(Host(name=name, slots=slots) for name, slots in pairs)


def test_slurms_node_lists_and_counts() -> None:
    for text, names in (
        ("n1", "n1"),
        ("n[01-03,7],gpu-1", "n01 n02 n03 n7 gpu-1"),
        ("n[9-11]", "n9 n10 n11"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("rack[1-2]n[01,02].x", "rack1n01.x rack1n02.x rack2n01.x rack2n02.x"),
        ("[1-2]x", "1x 2x"),
    ):
        assert " ".join(expand_nodes(text)) == names
    for text, counts in (("2(x3),1", (2, 2, 2, 1)), ("4", (4,)), ("1,2(x2)", (1, 2, 2))):
        assert expand_counts(text) == counts


@pytest.mark.parametrize(
    "text", ["n[1-2", "n1]", "n[2-1]", "n[a]", "n[]", "n[1-]", ",", "a,,b", "n[1-999999999]", "n[[1]]", ""]
)
def test_node_lists_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        expand_nodes(text)
    # A huge product is refused without being built.
    with pytest.raises(ValueError, match=str(MOST_HOSTS)):
        expand_nodes("a[1-1000]b[1-1000]c[1-1000]")


@pytest.mark.parametrize("text", ["", "0", "2(x", "2x3", "-1", "2(x9999999)", "2(x3)1"])
def test_counts_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        expand_counts(text)


def found_in(read: Callable[[str], str] = no_file, **environ: str) -> Allocation:
    found = find_allocation(environ, read)
    assert found is not None and bool(found.hosts) != bool(found.faults)
    return found


def test_slurm_with_tasks_cpus_or_nodes_only() -> None:
    cpus = {"SLURM_JOB_CPUS_PER_NODE": "64(x3)"}
    found = found_in(SLURM_JOB_NODELIST="n[1-2],g1", SLURM_TASKS_PER_NODE="2(x2),1", **cpus)
    assert (found.system, found.source) == ("Slurm", "SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE")
    assert found.hosts == hosts(("n1", 2), ("n2", 2), ("g1", 1))
    found = found_in(SLURM_JOB_NODELIST="n[1-2]", SLURM_JOB_CPUS_PER_NODE="8,4")
    assert found.hosts == hosts(("n1", 8), ("n2", 4))
    assert found_in(SLURM_NODELIST="n[1-2]").hosts == hosts(("n1", 1), ("n2", 1))
    nothing = {"PATH": "/bin", "SLURM_JOB_NODELIST": "", "PBS_NODEFILE": ""}
    assert find_allocation(nothing, no_file) is None


TWO = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_JOB_CPUS_PER_NODE": "64(x2)"}
"""What salloc -N2 sets where nobody asked for tasks."""


@pytest.mark.parametrize(
    ("variables", "slots", "source"),
    [
        ("", 1, "TASKS_PER_NODE"),
        ("GPUS_ON_NODE=8", 8, "GPUS_ON_NODE"),
        ("GPUS_PER_NODE=h100:8 GPUS_ON_NODE=8", 8, "GPUS_PER_NODE"),
        ("GPUS_PER_NODE=a100:2,h100:2", 4, "GPUS_PER_NODE"),
        ("GPUS=16", 8, "GPUS"),
        ("JOB_GPUS=0,1,4-5", 4, "JOB_GPUS"),
        ("GPUS_ON_NODE=0", 1, "TASKS_PER_NODE"),
        ("GPUS_ON_NODE=8 NTASKS=2", 1, "TASKS_PER_NODE"),
        ("GPUS_ON_NODE=8 NTASKS_PER_NODE=1", 1, "TASKS_PER_NODE"),
        # In salloc's interactive step the number of tasks is the step's own.
        ("GPUS_ON_NODE=8 NTASKS=1 STEP_NUM_TASKS=1", 8, "GPUS_ON_NODE"),
    ],
)
def test_slurm_gives_a_slot_for_each_gpu_where_no_tasks_were_asked_for(
    variables: str, slots: int, source: str
) -> None:
    found = found_in(**TWO, **dict(f"SLURM_{one}".split("=") for one in variables.split()))
    assert found.hosts == hosts(("n1", slots), ("n2", slots))
    assert found.source == f"SLURM_JOB_NODELIST, SLURM_{source}"
    assert found.rule == f"one slot for each {'GPU' if 'GPUS' in source else 'task'}"


def test_slurms_gpus_that_are_none() -> None:
    for text in ("x", "h100:", "4(S:0-1)", "-1", ","):
        (fault,) = found_in(**TWO, SLURM_GPUS_PER_NODE=text).faults
        assert fault.where == "SLURM_GPUS_PER_NODE" and "is not a number of GPUs" in fault.what
    (fault,) = found_in(**TWO, SLURM_GPUS="7").faults
    assert "7 GPUs do not share out evenly among 2 nodes" in fault.what


def test_slurms_faults_come_together_and_leave_no_hosts() -> None:
    faults = found_in(SLURM_JOB_NODELIST="n[1-", SLURM_TASKS_PER_NODE="many").faults
    assert [fault.where for fault in faults] == ["SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE"]
    assert "--no-allocation" in faults[0].hint
    (fault,) = found_in(SLURM_JOB_NODELIST="n[1-3]", SLURM_TASKS_PER_NODE="2(x2)").faults
    assert "2 counts for the 3 nodes" in fault.what


def test_pbs_names_a_host_once_for_each_slot() -> None:
    found = found_in(lambda path: "n1\nn1\nn2.cluster\nn1\n", PBS_NODEFILE="/var/spool/pbs/aux/7")
    assert (found.system, found.hosts) == ("PBS", hosts(("n1", 3), ("n2.cluster", 1)))
    (gone,) = found_in(PBS_NODEFILE="/gone").faults
    assert gone.where == "PBS_NODEFILE=/gone" and "No such file" in gone.what
    assert found_in(lambda path: "n1\n;rm\n", PBS_NODEFILE="/f").faults[0].where == "/f:2"


def test_lsf() -> None:
    found = found_in(LSB_MCPU_HOSTS="a 4 b 2 a 1", LSB_DJOB_HOSTFILE="/gone")
    assert (found.system, found.hosts) == ("LSF", hosts(("a", 5), ("b", 2)))
    assert found_in(lambda path: "a\na\nb\n", LSB_DJOB_HOSTFILE="/f").hosts == hosts(("a", 2), ("b", 1))
    for text in ("a", "a b", "a 0", "a 2 b", "a -1", "a:2 3", "-x 2"):
        assert found_in(LSB_MCPU_HOSTS=text).faults


@given(st.text(alphabet="n1[]-,x()0 ", max_size=30), st.text(alphabet="12(x),a", max_size=20))
def test_any_value_gives_hosts_or_faults(nodes: str, counts: str) -> None:
    environ = {"SLURM_JOB_NODELIST": nodes, "SLURM_TASKS_PER_NODE": counts, "LSB_MCPU_HOSTS": nodes}
    found = find_allocation(environ, no_file)
    assert found is None or bool(found.hosts) != bool(found.faults)


@pytest.mark.parametrize("kind", ["HET", "PACK"])
def test_all_components_of_a_heterogeneous_job_take_part(kind: str) -> None:
    """Names as Slurm's documentation of heterogeneous jobs has them; without an end: the first component."""
    environ = {f"SLURM_{kind}_SIZE": "2", "SLURM_JOB_ID": "11"}
    for end, nodes, tasks in (("", "n1", "1"), ("_GROUP_0", "n1", "1"), ("_GROUP_1", "g[1-2]", "4(x2)")):
        end = f"_{kind}{end}" if end else ""
        environ |= {f"SLURM_JOB_NODELIST{end}": nodes, f"SLURM_TASKS_PER_NODE{end}": tasks}
    found = found_in(**environ)
    assert found.hosts == hosts(("n1", 1), ("g1", 4), ("g2", 4))
    assert slurm_job_id(found, environ) is None, "the number is that of the first component"
    del environ[f"SLURM_JOB_NODELIST_{kind}_GROUP_1"]
    [fault] = found_in(**environ).faults
    assert fault.where == f"SLURM_JOB_NODELIST_{kind}_GROUP_1" and "-H" in fault.hint
