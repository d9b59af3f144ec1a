import re
from dataclasses import replace

import pytest

from ringleader.plan.job import Code, Family, Host, Job
from ringleader.plan.rank_placement import place
from ringleader.render.rank_environment import (
    NEVER_FORWARDED,
    Master,
    is_forwarded,
    jax_variables,
    master_address,
    rank_environment,
    search_path,
    thread_variables,
)

MASTER = Master(address="10.0.0.1", port="29500", jax_port="61442")


def job(**words):
    return Job(command=("true",), np=4, hosts=(Host(name="h1"), Host(name="h2")), **words)


@pytest.fixture(scope="session")
def two_hosts(make_facts):
    facts = (make_facts("h1", 1, cores=4, addresses=("10.0.0.1", "fe80::1")), make_facts("h2", 3, cores=6))
    return place(job(), facts)


@pytest.fixture(scope="session")
def environment(two_hosts, make_mpi):
    """The environment of a rank of two hosts, 1 + 3 ranks."""

    def make(rank=0, *, asked=None, plan=two_hosts, family=Family.OPENMPI5, caller=None, **words):
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


def test_the_device_that_jax_takes_is_the_one_that_the_rank_sees(environment, make_facts):
    for devices, np, rank, words in (
        ("1", 2, 1, {}),  # of the two that every rank sees
        ("0", 2, 1, {"all_gpus": False}),
        ("0", 2, 1, {"uncoupled": True}),
        ("0", 3, 2, {"share_gpus": True, "oversubscribe": True}),
        (None, 2, 1, {"env": (("CUDA_VISIBLE_DEVICES", "0,1"),)}),
        ("1", 2, 1, {"env": (("JAX_LOCAL_DEVICE_IDS", "1"),)}),
    ):
        asked = Job(command=("true",), np=np, **words)
        plan = place(asked, (make_facts("localhost", np, gpus=("0", "1")),))
        found = environment(rank, asked=asked, plan=plan).set
        assert found.get("JAX_LOCAL_DEVICE_IDS") == devices, words
        assert "env" in words or found["JAX_CUDA_VISIBLE_DEVICES"] == devices


TORCHRUN = {
    **{"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "3", "GROUP_RANK": "1"},
    **{"GROUP_WORLD_SIZE": "2", "NODE_RANK": "1", "ROLE_RANK": "2", "ROLE_WORLD_SIZE": "4"},
    **{
        "ROLE_NAME": "default",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "j1",
    },
}
STARTED_AGAIN = {
    "TORCHELASTIC_RUN_ID": "first",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_MAX_RESTARTS": "3",
    "RINGLEADER_JOB_ID": "j1",
}
OURS = {
    "RINGLEADER_JOB_ID": "j1",
    "RINGLEADER_LAUNCHED": "1",
    "RINGLEADER_MPI_FAMILY": "mpich",
    "MPI4PY_LIBMPI": "/opt/mpich/lib/libmpi.so",
}
OMP, XLA = "OMP_NUM_THREADS", "NPROC"
INTRA, INTER = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"
RECYCLED, PROFILE = "RINGLEADER_RECYCLED_RESULTS", "RINGLEADER_PROFILE"
CHECK, ALIAS, UNCOUPLED = "RINGLEADER_CONSISTENCY_CHECK", "RINGLEADER_AS_HOROVOD", "RINGLEADER_UNCOUPLED"
LIBRARIES = "LD_LIBRARY_PATH"
OF_JAX = {
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "1",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "JAX_COORDINATOR_ADDRESS": "127.0.0.1:61442",
}
HEAD = {"MASTER_ADDR": "head", "MASTER_PORT": "1"}
OPENMPI_LINK, HYDRA_LINK = "OMPI_MCA_btl_tcp_if_include", "FI_TCP_IFACE"
BOTH = job(network_interface="eth1,eth2")
CASES = [
    # what is said of; rank; how its environment is asked for; variable → value, None where it is not set
    ("torchrun's variables", 2, {}, TORCHRUN),
    ("a job that started again", 2, {"asked": job(max_restarts=3), "run_id": "first", "restart": 2},
     STARTED_AGAIN),
    ("what our own code reads", 0, {"family": Family.MPICH}, {**OURS, UNCOUPLED: None}),
    ("ranks that exchange nothing", 0, {"asked": job(uncoupled=True)}, {UNCOUPLED: "1"}),
    ("ranks that only synchronize", 0, {"asked": job(uncoupled=True, in_step=True)}, {UNCOUPLED: "in-step"}),
    ("a world of one for JAX", 3, {"asked": job(uncoupled=True)}, OF_JAX),
    ("threads follow the cores", 1, {}, {OMP: "2", INTRA: "2", INTER: "2", XLA: None}),
    ("the caller's threads", 1, {"caller": {OMP: "5", XLA: "9"}}, {OMP: "5", XLA: "9"}),
    ("threads of the words", 1, {"asked": job(env=((OMP, "6"),)), "caller": {OMP: "5"}}, {OMP: "6"}),
    ("threads of the option", 1, {"asked": job(threads=3), "caller": {OMP: "5"}}, {OMP: "3"}),
    ("words before the option", 1, {"asked": job(threads=3, env=((OMP, "6"),))}, {OMP: "6"}),
    ("one thread of TensorFlow", 1, {"asked": job(threads=1)}, {INTRA: "1", INTER: "2"}),
    ("the caller's TensorFlow", 1, {"caller": {INTRA: "5", OMP: "4"}}, {INTRA: "5", INTER: "2"}),
    ("a secret stays here", 3, {"caller": {"HF_TOKEN": "t0p", "WANDB_API_KEY": "t0p"}},
     {"HF_TOKEN": None, "WANDB_API_KEY": None}),
    ("a secret that is asked for", 3, {"asked": job(env=(("HF_TOKEN", "t0p"),))}, {"HF_TOKEN": "t0p"}),
    ("the MPI's library comes last", 0, {"caller": {LIBRARIES: "/my/lib"}},
     {LIBRARIES: "/my/lib:/opt/openmpi5/lib"}),
    ("no path that nobody set", 0, {}, {LIBRARIES: None, "PYTHONPATH": None, CHECK: None, ALIAS: None}),
    ("where ranks meet", 1, {"asked": job(env=tuple(HEAD.items()))}, HEAD),
    ("parameters that differ", 1, {"asked": job(consistency_check="error"), "caller": {CHECK: "off"}},
     {CHECK: "error"}),
    ("recycled results", 1, {"asked": job(recycled_results=0), "caller": {RECYCLED: "5"}}, {RECYCLED: "0"}),
    ("a profile", 1, {"asked": job(profile="2:3"), "caller": {PROFILE: "4:5"}}, {PROFILE: "2:3"}),
    ("the alias", 1, {"asked": job(as_horovod=True)}, {ALIAS: "1"}),
    *((f"interfaces of {family}", 0, {"asked": BOTH, "family": family},
       {name: value, "GLOO_SOCKET_IFNAME": "eth1,eth2", "NCCL_SOCKET_IFNAME": "=eth1,eth2"})
      for family, name, value in (
          (Family.OPENMPI5, OPENMPI_LINK, "eth1,eth2"), (Family.OPENMPI4, OPENMPI_LINK, "eth1,eth2"),
          (Family.MPICH, HYDRA_LINK, "eth1"), (Family.INTEL, HYDRA_LINK, "eth1"))),
    *((f"the caller's {name}", 0, {"asked": BOTH, "family": family, "caller": {name: "mine"}}, {name: "mine"})
      for family, name in (
          (Family.OPENMPI5, OPENMPI_LINK), (Family.MPICH, HYDRA_LINK),
          (Family.OPENMPI5, "GLOO_SOCKET_IFNAME"), (Family.OPENMPI5, "NCCL_SOCKET_IFNAME"))),
    *((f"no interface of {family}", 0, {"family": family},
       dict.fromkeys((OPENMPI_LINK, HYDRA_LINK, "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")))
      for family in Family),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rank", "words", "found"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_what_a_rank_is_told(environment, rank, words, found):
    seen = environment(rank, **words).set
    assert {name: seen.get(name) for name in found} == found


def test_a_world_of_one_for_every_uncoupled_rank(environment, make_facts):
    found = environment(3, asked=job(uncoupled=True)).set
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0"}
    alone |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RINGLEADER_UNCOUPLED": "1"}
    assert {name: found[name] for name in alone} == alone
    # Everything that decides how fast a rank computes is as in the coupled job.
    coupled = environment(3).set
    same = ("OMP_NUM_THREADS", "PATH", "MPI4PY_LIBMPI", "PYTHONUNBUFFERED")
    assert {name: found[name] for name in same} == {name: coupled[name] for name in same}
    assert list(found) == sorted(found) and UNCOUPLED in environment(0).unset
    asked = Job(command=("true",), np=2, all_gpus=True, uncoupled=True)
    plan = place(asked, (make_facts("localhost", 2, gpus=("0", "1")),))
    assert environment(1, asked=asked, plan=plan).set["CUDA_VISIBLE_DEVICES"] == "1"
    assert thread_variables(3, bound=False)["NPROC"] == "3"


def test_devices(environment, make_facts):
    asked = Job(command=("true",), np=2)
    plan = place(asked, (make_facts("localhost", 2, gpus=("MIG-a", "MIG-b")),))
    caller = {"CUDA_VISIBLE_DEVICES": "7", "CUDA_CACHE_PATH": "/c"}
    found = environment(1, asked=asked, plan=plan, caller=caller).set
    assert (found["CUDA_VISIBLE_DEVICES"], found["CUDA_CACHE_PATH"]) == ("MIG-b", "/c")
    chosen = Job(command=("true",), np=2, env=(("CUDA_VISIBLE_DEVICES", "0,1"),))
    assert environment(1, asked=chosen, plan=plan).set["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert "CUDA_VISIBLE_DEVICES" not in environment(0, caller=caller).set


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
    environment, make_facts, words, gpus, seen
):
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
    "HF_TOKENIZERS TF_CONFIG TF_GPU_ALLOCATOR TF_XLA_FLAGS TF_USE_LEGACY_KERAS"
)
LEFT_HERE = (
    "HOME USER HOSTNAME TMPDIR SLURM_JOB_ID SSH_AUTH_SOCK OMPI_COMM_WORLD_RANK PMIX_RANK OMPI_MCA_ess "
    "OMPI_MCA_orte_hnp_uri AWS_SECRET_ACCESS_KEY HF_TOKEN WANDB_API_KEY TF_SECRET KERAS_PASSWORD HF_hub_token"
    " TF_CLI_CONFIG_FILE TF_VAR_region TF_LOG TF_WORKSPACE TF_PLUGIN_CACHE_DIR"
)


def test_which_variables_of_the_caller_are_carried():
    names = (*CARRIED.split(), *LEFT_HERE.split(), *NEVER_FORWARDED)
    assert [name for name in names if is_forwarded(name)] == CARRIED.split()


def test_our_interpreter_comes_first_on_the_path_and_once(environment):
    assert environment(0, caller={"PATH": "/usr/bin:/venv/bin:/bin"}).set["PATH"] == "/venv/bin:/usr/bin:/bin"
    assert environment(0).set["PATH"].startswith("/venv/bin:/usr/local/bin:")
    asked = job(env=(("PATH", "/mine"),))
    assert environment(0, asked=asked, caller={"PATH": "/x"}).set["PATH"] == "/venv/bin:/mine"
    assert search_path(asked, {"PATH": "/x"}, "/p/bin/python3") == "/p/bin:/mine"


@pytest.mark.parametrize("below", [".", "pack/jobs"])
def test_pythonpath_leads_into_the_copy_of_its_host(environment, make_facts, below):
    entries = (("/me/code", "."), ("/me/code/src", "src"))
    code = Code(
        source="/me/code", digest="d", below=below, files=1, size=1, tree="/c/tree", python_path=entries
    )
    down = "" if below == "." else f"/{below}"
    asked = replace(job(), code=code, workdir=f"/c/tree{down}")
    there = replace(make_facts("h2", 3), directory=f"/there/tree{down}")
    plan = place(asked, (make_facts("h1", 1, cores=4), there))
    path = "/me/code:/me/code/src:/me/other"
    for rank, tree in ((0, "/c/tree"), (1, "/there/tree")):
        for words in (
            {"caller": {"PYTHONPATH": path}},
            {"asked": replace(asked, env=(("PYTHONPATH", path),))},
        ):
            found = environment(rank, plan=plan, **{"asked": asked, **words}).set["PYTHONPATH"]
            assert found == f"{tree}:{tree}/src:/me/other"


def test_master_address(two_hosts, make_facts):
    assert master_address(two_hosts) == "10.0.0.1"
    one = place(Job(command=("true",), np=2), (make_facts("localhost", 2, addresses=("10.0.0.1",)),))
    assert master_address(one) == "127.0.0.1"
    unknown = place(job(), (make_facts("bob@a", 2), make_facts("b", 2)))
    assert master_address(unknown) == "a"


OPEN_MPI_NUMBERS = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")


def jax_would_meet_at(uri):
    """What JAX 0.10 reads from the variable of Open MPI: address and port."""
    found = re.search(r"tcp://(.+?)[,:]|tcp6://\[(.+?)[,\]]", uri)
    return next(one for one in found.groups() if one), int(uri.split(".")[0]) // 4096 % 4096 + 61440


def test_where_jax_meets(environment):
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
    words = {"family": Family.OPENMPI5, "numbers": {}, "gpu": None, "alone": False}
    found = jax_variables(address="fd00::2", port="65535", **words)
    assert found["JAX_COORDINATOR_ADDRESS"] == "[fd00::2]:65535"
    assert jax_would_meet_at(found["OMPI_MCA_orte_hnp_uri"]) == ("fd00::2", 65535)
    dry = jax_variables(address="h1", port="(a free port)", **words)
    assert dry["JAX_COORDINATOR_ADDRESS"] == "h1:(a free port)"
