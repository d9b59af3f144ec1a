from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from ringleader.plan.job import Family, Host, Job, Mpi
from ringleader.plan.rank_placement import HostFacts, Plan, place
from ringleader.render.rank_environment import (
    NEVER_FORWARDED,
    RESERVED,
    Master,
    RankEnvironment,
    is_forwarded,
    jax_variables,
    master_address,
    rank_environment,
    search_path,
    thread_variables,
)

Make = Callable[..., HostFacts]
MakeMpi = Callable[[Family], Mpi]
MASTER = Master(address="10.0.0.1", port="29500", jax_port="61442")


def job(**words: Any) -> Job:
    return Job(command=("true",), np=4, hosts=(Host(name="h1"), Host(name="h2")), **words)


@pytest.fixture(scope="session")
def two_hosts(make_facts: Make) -> Plan:
    facts = (make_facts("h1", 1, cores=4, addresses=("10.0.0.1", "fe80::1")), make_facts("h2", 3, cores=6))
    return place(job(), facts)


@pytest.fixture(scope="session")
def environment(two_hosts: Plan, make_mpi: MakeMpi) -> Callable[..., RankEnvironment]:
    """The environment of a rank of two hosts, 1 + 3 ranks."""

    def make(
        rank: int = 0,
        *,
        asked: Job | None = None,
        plan: Plan = two_hosts,
        family: Family = Family.OPENMPI5,
        caller: dict[str, str] | None = None,
        **words: Any,
    ) -> RankEnvironment:
        return rank_environment(
            plan=plan,
            place=plan.ranks[rank],
            job=asked if asked is not None else job(),
            mpi=make_mpi(family),
            job_id="j1",
            master=MASTER,
            caller=caller if caller is not None else {},
            python="/venv/bin/python",
            **words,
        )

    return make


Environment = Callable[..., RankEnvironment]


def test_torchruns_variables(environment: Environment) -> None:
    found = environment(2).set
    expected = {
        "RANK": "2",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "3",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "NODE_RANK": "1",
        "ROLE_RANK": "2",
        "ROLE_WORLD_SIZE": "4",
        "ROLE_NAME": "default",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "j1",
    }
    assert {name: found[name] for name in expected} == expected


def test_a_job_that_started_again_keeps_its_name_and_counts(environment: Environment) -> None:
    asked = job(max_restarts=3)
    found = environment(2, asked=asked, run_id="first", restart=2).set
    assert [found[f"TORCHELASTIC_{name}"] for name in ("RUN_ID", "RESTART_COUNT", "MAX_RESTARTS")] == [
        "first",
        "2",
        "3",
    ]
    assert found["RINGLEADER_JOB_ID"] == "j1"


def test_what_our_own_code_reads(environment: Environment) -> None:
    found = environment(0, family=Family.MPICH).set
    assert found["RINGLEADER_JOB_ID"] == "j1"
    assert found["RINGLEADER_LAUNCHED"] == "1"
    assert found["RINGLEADER_MPI_FAMILY"] == "mpich"
    assert found["MPI4PY_LIBMPI"] == "/opt/mpich/lib/libmpi.so"
    assert "RINGLEADER_UNCOUPLED" not in found
    assert "RINGLEADER_UNCOUPLED" in environment(0).unset


def test_ranks_that_exchange_nothing_are_told_whether_to_meet(environment: Environment) -> None:
    for in_step, value in ((False, "1"), (True, "in-step")):
        found = environment(0, asked=job(uncoupled=True, in_step=in_step)).set
        assert found["RINGLEADER_UNCOUPLED"] == value


def test_names_are_sorted(environment: Environment) -> None:
    found = environment(0, caller={"ZZ": "1", "UCX_A": "1"}, asked=job(env=(("ZA", "1"), ("AA", "2")))).set
    assert list(found) == sorted(found)


def test_a_world_of_one_for_every_uncoupled_rank(environment: Environment) -> None:
    found = environment(3, asked=job(uncoupled=True)).set
    expected = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "RINGLEADER_UNCOUPLED": "1",
    }
    assert {name: found[name] for name in expected} == expected
    # Everything that decides how fast a rank computes is as in the coupled job.
    coupled = environment(3).set
    same = ("OMP_NUM_THREADS", "PATH", "MPI4PY_LIBMPI", "PYTHONUNBUFFERED")
    assert {name: found[name] for name in same} == {name: coupled[name] for name in same}


@pytest.mark.parametrize(
    ("threads", "words", "caller", "expected"),
    [
        (None, (), {}, "2"),
        (None, (), {"OMP_NUM_THREADS": "5"}, "5"),
        (None, (("OMP_NUM_THREADS", "6"),), {"OMP_NUM_THREADS": "5"}, "6"),
        (3, (), {"OMP_NUM_THREADS": "5"}, "3"),
        (3, (("OMP_NUM_THREADS", "6"),), {}, "6"),
    ],
)
def test_threads_are_chosen_unless_the_user_did(
    environment: Environment,
    threads: int | None,
    words: tuple[tuple[str, str], ...],
    caller: dict[str, str],
    expected: str,
) -> None:
    found = environment(1, asked=job(threads=threads, env=words), caller=caller).set
    assert found["OMP_NUM_THREADS"] == expected


TENSORFLOW = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


@pytest.mark.parametrize(
    ("threads", "caller", "expected"),
    [
        (None, {}, ("2", "2")),
        (1, {}, ("1", "2")),
        (8, {}, ("8", "8")),
        (None, {"TF_NUM_INTRAOP_THREADS": "5", "OMP_NUM_THREADS": "4"}, ("5", "2")),
    ],
)
def test_threads_of_tensorflow(
    environment: Environment, threads: int | None, caller: dict[str, str], expected: tuple[str, ...]
) -> None:
    found = environment(1, asked=job(threads=threads), caller=caller).set
    assert tuple(found[name] for name in TENSORFLOW) == expected


def test_threads_of_xla_follow_the_cores_unless_ranks_roam(environment: Environment) -> None:
    assert "NPROC" not in environment(1, asked=job()).set
    assert thread_variables(3, bound=False)["NPROC"] == "3"
    assert environment(1, asked=job(), caller={"NPROC": "9"}).set["NPROC"] == "9"


def test_devices(environment: Environment, make_facts: Make) -> None:
    asked = Job(command=("true",), np=2)
    plan = place(asked, (make_facts("localhost", 2, gpus=("MIG-a", "MIG-b")),))
    caller = {"CUDA_VISIBLE_DEVICES": "7", "CUDA_CACHE_PATH": "/c"}
    found = environment(1, asked=asked, plan=plan, caller=caller).set
    assert (found["CUDA_VISIBLE_DEVICES"], found["CUDA_CACHE_PATH"]) == ("MIG-b", "/c")
    chosen = Job(command=("true",), np=2, env=(("CUDA_VISIBLE_DEVICES", "0,1"),))
    assert environment(1, asked=chosen, plan=plan).set["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert "CUDA_VISIBLE_DEVICES" not in environment(0, caller=caller).set


def test_an_uncoupled_rank_that_may_see_all_devices_sees_its_own(
    environment: Environment, make_facts: Make
) -> None:
    asked = Job(command=("true",), np=2, all_gpus=True, uncoupled=True)
    plan = place(asked, (make_facts("localhost", 2, gpus=("0", "1")),))
    assert environment(1, asked=asked, plan=plan).set["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.parametrize(
    ("words", "gpus", "seen"),
    [
        ({}, ("0", "1", "2"), ["0,1,2", "0,1,2"]),
        ({}, ("GPU-a", "GPU-b"), ["GPU-a,GPU-b", "GPU-a,GPU-b"]),
        ({}, ("MIG-a", "MIG-b"), ["MIG-a", "MIG-b"]),
        ({"all_gpus": False}, ("0", "1", "2"), ["0", "1"]),
        ({"share_gpus": True}, ("4",), ["4", "4"]),
        ({"as_horovod": True, "share_gpus": True}, ("0", "1"), ["0,1", "0,1"]),
    ],
    ids=["all by default", "UUIDs", "CUDA takes one MIG instance", "own", "shared", "as horovodrun"],
)
def test_torch_cuda_set_device_of_the_local_rank_finds_the_ranks_own_gpu(
    environment: Environment, make_facts: Make, words: dict[str, Any], gpus: tuple[str, ...], seen: list[str]
) -> None:
    asked = Job(command=("true",), np=2, **words)
    plan = place(asked, (make_facts("localhost", 2, gpus=gpus),))
    found = [environment(rank, asked=asked, plan=plan).set for rank in (0, 1)]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in found] == seen
    for place_, one in zip(plan.ranks, found, strict=True):
        visible = one["CUDA_VISIBLE_DEVICES"].split(",")
        assert visible[int(one["LOCAL_RANK"]) % len(visible)] == place_.gpu


CARRIED = (
    "NCCL_DEBUG UCX_TLS FI_PROVIDER OMPI_MCA_btl PYTHONPATH HF_HOME TORCH_HOME TF_CPP_MIN_LOG_LEVEL "
    "OMP_PROC_BIND MKL_NUM_THREADS LANG LC_ALL PATH VIRTUAL_ENV LD_LIBRARY_PATH RINGLEADER_ANYTHING "
    "HF_TOKENIZERS"
)
LEFT_HERE = (
    "HOME USER HOSTNAME TMPDIR SLURM_JOB_ID SSH_AUTH_SOCK OMPI_COMM_WORLD_RANK PMIX_RANK OMPI_MCA_ess "
    "OMPI_MCA_orte_hnp_uri AWS_SECRET_ACCESS_KEY HF_TOKEN WANDB_API_KEY TF_SECRET KERAS_PASSWORD HF_hub_token"
)


def test_which_variables_of_the_caller_are_carried() -> None:
    names = (*CARRIED.split(), *LEFT_HERE.split(), *NEVER_FORWARDED)
    assert [name for name in names if is_forwarded(name)] == CARRIED.split()


def test_a_secret_travels_only_where_it_was_asked_for(environment: Environment) -> None:
    caller = {"HF_TOKEN": "t0p", "WANDB_API_KEY": "t0p"}
    assert "t0p" not in environment(3, caller=caller).set.values()
    assert environment(3, caller=caller, asked=job(env=(("HF_TOKEN", "t0p"),))).set["HF_TOKEN"] == "t0p"


def test_our_interpreter_comes_first_on_the_path_and_once(environment: Environment) -> None:
    assert environment(0, caller={"PATH": "/usr/bin:/venv/bin:/bin"}).set["PATH"] == "/venv/bin:/usr/bin:/bin"
    assert environment(0).set["PATH"].startswith("/venv/bin:/usr/local/bin:")
    asked = job(env=(("PATH", "/mine"),))
    assert environment(0, asked=asked, caller={"PATH": "/x"}).set["PATH"] == "/venv/bin:/mine"
    assert search_path(asked, {"PATH": "/x"}, "/p/bin/python3") == "/p/bin:/mine"


def test_library_path_keeps_the_mpi_at_its_end(environment: Environment) -> None:
    found = environment(0, caller={"LD_LIBRARY_PATH": "/my/lib"}).set
    assert found["LD_LIBRARY_PATH"] == "/my/lib:/opt/openmpi5/lib"
    assert "LD_LIBRARY_PATH" not in environment(0).set


def test_the_python_path_is_the_callers(environment: Environment) -> None:
    assert environment(0, caller={"PYTHONPATH": "/a:/b"}).set["PYTHONPATH"] == "/a:/b"
    assert "PYTHONPATH" not in environment(0).set


@pytest.mark.parametrize(
    ("family", "name", "value"),
    [
        (Family.OPENMPI5, "OMPI_MCA_btl_tcp_if_include", "eth1,eth2"),
        (Family.OPENMPI4, "OMPI_MCA_btl_tcp_if_include", "eth1,eth2"),
        (Family.MPICH, "FI_TCP_IFACE", "eth1"),
        (Family.INTEL, "FI_TCP_IFACE", "eth1"),
        (Family.OPENMPI5, "GLOO_SOCKET_IFNAME", "eth1,eth2"),
        (Family.OPENMPI5, "NCCL_SOCKET_IFNAME", "=eth1,eth2"),
    ],
)
def test_interface(environment: Environment, family: Family, name: str, value: str) -> None:
    asked = job(network_interface="eth1,eth2")
    assert environment(0, asked=asked, family=family).set[name] == value
    assert environment(0, asked=asked, family=family, caller={name: "mine"}).set[name] == "mine"
    assert name not in environment(0, family=family).set


def test_a_user_cannot_change_who_a_rank_is(environment: Environment) -> None:
    found = environment(1, asked=job(env=tuple((name, "9") for name in RESERVED))).set
    assert found["RANK"] == "1"
    assert found["RINGLEADER_JOB_ID"] == "j1"


def test_a_user_may_say_where_ranks_meet(environment: Environment) -> None:
    found = environment(1, asked=job(env=(("MASTER_ADDR", "head"), ("MASTER_PORT", "1")))).set
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("head", "1")


def test_master_address(two_hosts: Plan, make_facts: Make) -> None:
    assert master_address(two_hosts) == "10.0.0.1"
    one = place(Job(command=("true",), np=2), (make_facts("localhost", 2, addresses=("10.0.0.1",)),))
    assert master_address(one) == "127.0.0.1"
    unknown = place(job(), (make_facts("bob@a", 2), make_facts("b", 2)))
    assert master_address(unknown) == "a"


def test_what_is_done_where_parameters_differ(environment: Environment) -> None:
    name = "RINGLEADER_CONSISTENCY_CHECK"
    assert environment(1, asked=job(consistency_check="error"), caller={name: "off"}).set[name] == "error"
    assert name not in environment(1).set
    assert environment(1, caller={name: "off"}).set[name] == "off"


def test_how_many_results_are_recycled(environment: Environment) -> None:
    name = "RINGLEADER_RECYCLED_RESULTS"
    assert environment(1, asked=job(recycled_results=0), caller={name: "5"}).set[name] == "0"
    assert name not in environment(1).set
    assert environment(1, caller={name: "5"}).set[name] == "5"


def test_the_alias_is_only_where_it_was_asked_for(environment: Environment) -> None:
    assert environment(1, asked=job(as_horovod=True)).set["RINGLEADER_AS_HOROVOD"] == "1"
    assert "RINGLEADER_AS_HOROVOD" not in environment(1).set
    assert environment(1, caller={"RINGLEADER_AS_HOROVOD": "1"}).set["RINGLEADER_AS_HOROVOD"] == "1"


OPEN_MPI_NUMBERS = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")


def jax_would_meet_at(uri: str) -> tuple[str, int]:
    """What JAX 0.10 reads from the variable of Open MPI: address and port."""
    found = re.search(r"tcp://(.+?)[,:]|tcp6://\[(.+?)[,\]]", uri)
    assert found is not None
    return next(one for one in found.groups() if one), int(uri.split(".")[0]) // 4096 % 4096 + 61440


def test_where_jax_meets(environment: Environment) -> None:
    for family in (Family.OPENMPI5, Family.MPICH, Family.INTEL):
        found = environment(2, family=family).set
        assert found["JAX_COORDINATOR_ADDRESS"] == "10.0.0.1:61442"
        assert jax_would_meet_at(found["OMPI_MCA_orte_hnp_uri"]) == ("10.0.0.1", 61442)
        given = [found.get(name) for name in OPEN_MPI_NUMBERS]
        assert given == ([None] * 3 if family is Family.OPENMPI5 else ["2", "4", "1"])
    found = environment(2, family=Family.OPENMPI4).set
    assert found["JAX_COORDINATOR_ADDRESS"] == "10.0.0.1:61442"
    assert "OMPI_MCA_orte_hnp_uri" not in found  # Open MPI 4 sets its own and needs it
    mine = (("OMPI_MCA_orte_hnp_uri", "mine"), ("JAX_COORDINATOR_ADDRESS", "me:1"))
    assert dict(mine).items() <= environment(0, asked=job(env=mine)).set.items()
    stale = {"JAX_COORDINATOR_ADDRESS": "outer:1", "JAX_LOCAL_DEVICE_IDS": "3", "JAX_ENABLE_X64": "1"}
    found = environment(0, caller=stale).set
    assert (found["JAX_COORDINATOR_ADDRESS"], found["JAX_ENABLE_X64"]) == ("10.0.0.1:61442", "1")
    assert "JAX_LOCAL_DEVICE_IDS" not in found


def test_an_uncoupled_rank_is_a_world_of_one_for_jax(environment: Environment) -> None:
    found = environment(3, asked=job(uncoupled=True)).set
    assert [found[name] for name in OPEN_MPI_NUMBERS] == ["0", "1", "0"]
    assert found["JAX_COORDINATOR_ADDRESS"] == "127.0.0.1:61442"


def test_jax_meets_at_an_address_of_ipv6() -> None:
    words = {"family": Family.OPENMPI5, "numbers": {}, "gpu": None}
    found = jax_variables(address="fd00::2", port="65535", alone=False, **words)
    assert found["JAX_COORDINATOR_ADDRESS"] == "[fd00::2]:65535"
    assert jax_would_meet_at(found["OMPI_MCA_orte_hnp_uri"]) == ("fd00::2", 65535)
    dry = jax_variables(address="h1", port="(a free port)", alone=False, **words)
    assert dry["JAX_COORDINATOR_ADDRESS"] == "h1:(a free port)"


def test_the_device_that_jax_takes_is_the_one_that_the_rank_sees(
    environment: Environment, make_facts: Make
) -> None:
    def devices(*, np: int = 2, rank: int = 1, **words: Any) -> str | None:
        asked = Job(command=("true",), np=np, **words)
        plan = place(asked, (make_facts("localhost", np, gpus=("0", "1")),))
        found = environment(rank, asked=asked, plan=plan).set
        assert "env" in words or found["JAX_CUDA_VISIBLE_DEVICES"] == found["JAX_LOCAL_DEVICE_IDS"]
        return found.get("JAX_LOCAL_DEVICE_IDS")

    assert devices() == "1"  # of the two that every rank sees
    assert devices(all_gpus=False) == "0"
    assert devices(uncoupled=True) == "0"
    assert devices(np=3, share_gpus=True, oversubscribe=True, rank=2) == "0"
    assert devices(env=(("CUDA_VISIBLE_DEVICES", "0,1"),)) is None
    assert devices(env=(("JAX_LOCAL_DEVICE_IDS", "1"),)) == "1"
