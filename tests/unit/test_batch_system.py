import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.plan.batch_system import (
    MOST_HOSTS,
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


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", "n1"),
        ("n[01-03,7],gpu-1", "n01 n02 n03 n7 gpu-1"),
        ("n[9-11]", "n9 n10 n11"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("rack[1-2]n[01,02].x", "rack1n01.x rack1n02.x rack2n01.x rack2n02.x"),
        ("a,b,c", "a b c"),
        ("[1-2]x", "1x 2x"),
    ],
)
def test_slurms_node_lists(text: str, names: str) -> None:
    assert " ".join(expand_nodes(text)) == names


@pytest.mark.parametrize(
    "text", ["n[1-2", "n1]", "n[2-1]", "n[a]", "n[]", "n[1-]", ",", "a,,b", "n[1-999999999]", "n[[1]]", ""]
)
def test_node_lists_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        expand_nodes(text)


def test_huge_products_of_ranges_are_refused_without_being_built() -> None:
    with pytest.raises(ValueError, match=str(MOST_HOSTS)):
        expand_nodes("a[1-1000]b[1-1000]c[1-1000]")


@pytest.mark.parametrize(("text", "counts"), [("2(x3),1", (2, 2, 2, 1)), ("4", (4,)), ("1,2(x2)", (1, 2, 2))])
def test_slurms_counts(text: str, counts: tuple[int, ...]) -> None:
    assert expand_counts(text) == counts


@pytest.mark.parametrize("text", ["", "0", "2(x", "2x3", "-1", "2(x9999999)", "2(x3)1"])
def test_counts_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        expand_counts(text)


def test_slurm_with_tasks() -> None:
    environ = {
        "SLURM_JOB_NODELIST": "n[1-2],g1",
        "SLURM_TASKS_PER_NODE": "2(x2),1",
        "SLURM_JOB_CPUS_PER_NODE": "64(x3)",
    }
    found = find_allocation(environ, no_file)
    assert (found.system, found.source) == ("Slurm", "SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE")
    assert found.hosts == hosts(("n1", 2), ("n2", 2), ("g1", 1))
    assert found.faults == ()


TWO = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_JOB_CPUS_PER_NODE": "64(x2)"}
"""What salloc -N2 sets where nobody asked for tasks."""


@pytest.mark.parametrize(
    ("variables", "slots", "source", "rule"),
    [
        ({}, 1, "SLURM_TASKS_PER_NODE", "task"),
        ({"SLURM_GPUS_ON_NODE": "8"}, 8, "SLURM_GPUS_ON_NODE", "GPU"),
        ({"SLURM_GPUS_PER_NODE": "h100:8", "SLURM_GPUS_ON_NODE": "8"}, 8, "SLURM_GPUS_PER_NODE", "GPU"),
        ({"SLURM_GPUS_PER_NODE": "a100:2,h100:2"}, 4, "SLURM_GPUS_PER_NODE", "GPU"),
        ({"SLURM_GPUS": "16"}, 8, "SLURM_GPUS", "GPU"),
        ({"SLURM_JOB_GPUS": "0,1,4-5"}, 4, "SLURM_JOB_GPUS", "GPU"),
        ({"SLURM_GPUS_ON_NODE": "0"}, 1, "SLURM_TASKS_PER_NODE", "task"),
        ({"SLURM_GPUS_ON_NODE": "8", "SLURM_NTASKS": "2"}, 1, "SLURM_TASKS_PER_NODE", "task"),
        ({"SLURM_GPUS_ON_NODE": "8", "SLURM_NTASKS_PER_NODE": "1"}, 1, "SLURM_TASKS_PER_NODE", "task"),
        # In salloc's interactive step the number of tasks is the step's own.
        (
            {"SLURM_GPUS_ON_NODE": "8", "SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1"},
            8,
            "SLURM_GPUS_ON_NODE",
            "GPU",
        ),
    ],
)
def test_slurm_gives_a_slot_for_each_gpu_where_no_tasks_were_asked_for(
    variables: dict[str, str], slots: int, source: str, rule: str
) -> None:
    found = find_allocation(TWO | variables, no_file)
    assert found is not None and found.faults == ()
    assert found.hosts == hosts(("n1", slots), ("n2", slots))
    assert found.source == f"SLURM_JOB_NODELIST, {source}"
    assert found.rule == f"one slot for each {rule}"


@pytest.mark.parametrize("text", ["x", "h100:", "4(S:0-1)", "-1", ","])
def test_slurms_gpus_that_are_none(text: str) -> None:
    found = find_allocation(TWO | {"SLURM_GPUS_PER_NODE": text}, no_file)
    assert found is not None and found.hosts == ()
    (fault,) = found.faults
    assert fault.where == "SLURM_GPUS_PER_NODE" and "is not a number of GPUs" in fault.what


def test_slurms_gpus_that_do_not_share_out() -> None:
    found = find_allocation(TWO | {"SLURM_GPUS": "7"}, no_file)
    assert found is not None and "7 GPUs do not share out evenly among 2 nodes" in found.faults[0].what


def test_slurm_with_cpus_only() -> None:
    found = find_allocation({"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_CPUS_PER_NODE": "8,4"}, no_file)
    assert found.hosts == hosts(("n1", 8), ("n2", 4))


def test_slurm_with_nodes_only_gives_one_rank_each() -> None:
    found = find_allocation({"SLURM_NODELIST": "n[1-2]"}, no_file)
    assert found.hosts == hosts(("n1", 1), ("n2", 1))


def test_slurms_faults_come_together_and_leave_no_hosts() -> None:
    found = find_allocation({"SLURM_JOB_NODELIST": "n[1-", "SLURM_TASKS_PER_NODE": "many"}, no_file)
    assert [fault.where for fault in found.faults] == ["SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE"]
    assert found.hosts == ()
    assert "--no-allocation" in found.faults[0].hint


def test_slurms_counts_must_be_as_many_as_its_nodes() -> None:
    found = find_allocation({"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_TASKS_PER_NODE": "2(x2)"}, no_file)
    assert "2 counts for the 3 nodes" in found.faults[0].what


def test_pbs_names_a_host_once_for_each_slot() -> None:
    files = {"/var/spool/pbs/aux/7": "n1\nn1\nn2.cluster\nn1\n"}
    found = find_allocation({"PBS_NODEFILE": "/var/spool/pbs/aux/7"}, files.__getitem__)
    assert found.system == "PBS"
    assert found.hosts == hosts(("n1", 3), ("n2.cluster", 1))


def test_pbs_file_that_is_gone() -> None:
    found = find_allocation({"PBS_NODEFILE": "/gone"}, no_file)
    assert found.faults[0].where == "PBS_NODEFILE=/gone"
    assert "No such file" in found.faults[0].what


def test_pbs_file_with_a_bad_line_names_it() -> None:
    found = find_allocation({"PBS_NODEFILE": "/f"}, lambda path: "n1\n;rm\n")
    assert found.faults[0].where == "/f:2"
    assert found.hosts == ()


def test_lsf() -> None:
    found = find_allocation({"LSB_MCPU_HOSTS": "a 4 b 2 a 1", "LSB_DJOB_HOSTFILE": "/gone"}, no_file)
    assert (found.system, found.hosts) == ("LSF", hosts(("a", 5), ("b", 2)))
    found = find_allocation({"LSB_DJOB_HOSTFILE": "/f"}, lambda path: "a\na\nb\n")
    assert (found.system, found.hosts) == ("LSF", hosts(("a", 2), ("b", 1)))


@pytest.mark.parametrize("text", ["a", "a b", "a 0", "a 2 b", "a -1", "a:2 3", "-x 2"])
def test_lsf_lists_that_are_none(text: str) -> None:
    found = find_allocation({"LSB_MCPU_HOSTS": text}, no_file)
    assert found.faults
    assert found.hosts == ()


def test_no_batch_system() -> None:
    assert find_allocation({"PATH": "/bin", "SLURM_JOB_NODELIST": "", "PBS_NODEFILE": ""}, no_file) is None


@given(st.text(alphabet="n1[]-,x()0 ", max_size=30), st.text(alphabet="12(x),a", max_size=20))
def test_any_value_gives_hosts_or_faults(nodes: str, counts: str) -> None:
    environ = {"SLURM_JOB_NODELIST": nodes, "SLURM_TASKS_PER_NODE": counts, "LSB_MCPU_HOSTS": nodes}
    found = find_allocation(environ, no_file)
    assert found is None or bool(found.hosts) != bool(found.faults)


@pytest.mark.parametrize("kind", ["HET", "PACK"])
def test_all_components_of_a_heterogeneous_job_take_part(kind: str) -> None:
    """Names as Slurm's documentation of heterogeneous jobs has them; without an end: the first component."""
    environ = {
        f"SLURM_{kind}_SIZE": "2",
        "SLURM_JOB_ID": "11",
        "SLURM_JOB_NODELIST": "n1",
        "SLURM_TASKS_PER_NODE": "1",
        f"SLURM_JOB_NODELIST_{kind}_GROUP_0": "n1",
        f"SLURM_TASKS_PER_NODE_{kind}_GROUP_0": "1",
        f"SLURM_JOB_NODELIST_{kind}_GROUP_1": "g[1-2]",
        f"SLURM_TASKS_PER_NODE_{kind}_GROUP_1": "4(x2)",
    }
    found = find_allocation(environ, no_file)
    assert found is not None and found.faults == ()
    assert found.hosts == hosts(("n1", 1), ("g1", 4), ("g2", 4))
    assert slurm_job_id(found, environ) is None, "the number is that of the first component"
    del environ[f"SLURM_JOB_NODELIST_{kind}_GROUP_1"]
    found = find_allocation(environ, no_file)
    assert found is not None and found.hosts == ()
    [fault] = found.faults
    assert fault.where == f"SLURM_JOB_NODELIST_{kind}_GROUP_1" and "-H" in fault.hint
