"""Variables of Slurm, PBS and LSF in, hosts with slots out."""

from hypothesis import given
from hypothesis import strategies as st
from tests import transcripts

from ringleader.plan.batch_system import find_allocation, slurm_job_id

FILES = {"/nodes": "n1\nn1\nn2.cluster\nn1\n", "/odd": "n1\n;rm\n"}


def read(path: str) -> str:
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory", path)
    return FILES[path]


def test_hosts_of_an_allocation() -> None:
    def call(*words: str) -> tuple[int, str, str]:
        environ = dict(word.split("=", 1) for word in words)
        found = find_allocation(environ, read)
        if found is None:
            return 0, "no allocation\n", ""
        hosts = " ".join(f"{host.name}:{host.slots}" for host in found.hosts)
        about = f"{found.system}, {found.source}: {found.rule}; job {slurm_job_id(found, environ)}\n{hosts}\n"
        faults = "".join(f"{fault}\n" for fault in found.faults)
        return (2, "", faults) if faults else (0, about, "")

    transcripts.check("allocations/allocations.txt", call)


@given(st.text(alphabet="n1[]-,x()0 ", max_size=30), st.text(alphabet="12(x),a", max_size=20))
def test_any_value_gives_hosts_or_faults(nodes: str, counts: str) -> None:
    environ = {"SLURM_JOB_NODELIST": nodes, "SLURM_TASKS_PER_NODE": counts, "LSB_MCPU_HOSTS": nodes}
    found = find_allocation(environ, read)
    assert found is None or bool(found.hosts) != bool(found.faults)
