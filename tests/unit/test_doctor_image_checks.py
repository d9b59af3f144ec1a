"""The self-test's decisions: facts in, findings out. Tables of cases; nothing is started."""

import json
from dataclasses import replace

import pytest

from ringleader.doctor.image_checks import document_of, judge, same_version
from ringleader.doctor.image_facts import Account, Facts, Key, Launcher, Library, Module, TwoRankTest

OPENMPI = "/usr/lib/x86_64-linux-gnu/libmpi.so.40"
RANKS = {"size": 2, "through": "mpi4py", "memlock": -1, "libraries": []}
BLOCKS = {
    "torch": {"version": "2.8.0"},
    "mpi": {"kind": "openmpi", "version": ""},
    "ucx": {"version": ""},
    "rdma": {"user_space": "rdma-core"},
    "sshd": {"port": 2222, "keys": "mounted"},
    "account": {"name": "trainer", "uid": 1000},
}
MANIFEST = {"name": "digits", "recipe": "sha256:0123", "historical": False, "mirrors_kept": False}
GOOD = Facts(
    manifest={**MANIFEST, "blocks": BLOCKS},
    python="3.11.2",
    executable="/opt/venv/bin/python",
    ringleader="0.1.0",
    modules=(
        Module(name="torch", installed="2.8.0+cpu", version="2.8.0+cpu", details={"cuda": "", "gpus": 0}),
        Module(
            name="mpi4py",
            installed="4.1.2",
            version="4.1.2",
            details={"library": "Open MPI v4.1.4, package"},
            libraries=(OPENMPI,),
        ),
    ),
    libraries=(
        Library(name="libucp.so.0", path="/usr/lib/libucp.so.0", version="1.13.1"),
        Library(name="libibverbs.so.1", path="/usr/lib/libibverbs.so.1", version="1.14.44.0"),
        Library(name="libfabric.so.1", error="libfabric.so.1: cannot open shared object file"),
        Library(name="libnccl.so.2", error="libnccl.so.2: cannot open shared object file"),
        Library(name="libcuda.so.1", error="libcuda.so.1: cannot open shared object file"),
    ),
    mpi=Launcher(family="openmpi4", version="4.1.4", mpirun="/usr/bin/mpirun", library=OPENMPI),
    providers=("efa", "mlx5"),
    looked_at=12,
    account=Account(uid=1000, name="trainer", home="/home/trainer"),
    apt_hosts=("deb.debian.org",),
    two_ranks=TwoRankTest(
        sshd="/usr/sbin/sshd", version="OpenSSH_9.2p1", config="/etc/ssh/sshd_config", over="ssh", ranks=RANKS
    ),
)


def levels(facts: Facts) -> dict[str, str]:
    return {one.id: one.verdict.upper() for one in judge(facts)}


def finding(facts: Facts, id: str):
    return next(one for one in judge(facts) if one.id == id)


def with_module(facts: Facts, module: Module) -> Facts:
    others = tuple(one for one in facts.modules if one.name != module.name)
    return replace(facts, modules=(*others, module))


def with_blocks(facts: Facts, **blocks: dict[str, object]) -> Facts:
    manifest = facts.manifest or {}
    return replace(facts, manifest={**manifest, "blocks": {**manifest["blocks"], **blocks}})


def without(facts: Facts, *names: str) -> Facts:
    manifest = facts.manifest or {}
    blocks = {name: block for name, block in manifest["blocks"].items() if name not in names}
    return replace(facts, manifest={**manifest, "blocks": blocks})


CUDA = Module(
    name="torch",
    installed="2.8.0+cu128",
    version="2.8.0+cu128",
    details={"cuda": "12.8", "cudnn": "9.10.2", "nccl": "2.27.3", "gpus": 0},
    libraries=("/opt/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2",),
)


def test_a_good_image() -> None:
    assert levels(GOOD) == {
        **dict.fromkeys(("image", "python", "torch", "mpi", "mpi4py", "ucx"), "PASS"),
        "libfabric": "SKIP",
        **dict.fromkeys(("libibverbs", "providers", "libraries", "user", "home", "memlock"), "PASS"),
        **dict.fromkeys(("keys", "pip", "apt", "sshd", "login", "ranks"), "PASS"),
    }
    (one, *_) = judge(GOOD)
    told = {"id": one.id, "level": one.verdict.upper(), "what": one.seen, "do": one.remedy}
    assert json.loads(json.dumps(document_of(one))) == told
    old = with_blocks(GOOD, sshd={"keys": "in-image"})
    old = replace(old, manifest={**old.manifest, "historical": True}, keys=(Key(path="/k", mounted=False),))
    assert levels(old)["keys"] == "WARN", "said, and no fault"
    same = [("2.8.0", "2.8.0+cu128"), ("2.8", "2.8.0"), ("2.8.0", "2.8"), ("1.6.0", "1.6.0.post0")]
    assert all(same_version(*pair) for pair in same)
    assert not same_version("2.8.0", "2.8.1") and not same_version("2.8", "2.80.0")
    assert list(levels(GOOD)) == [one.id for one in judge(GOOD)], "an id stands for one check"


@pytest.mark.parametrize(
    ("facts", "id", "level", "words"),
    [
        (replace(GOOD, manifest=None, manifest_error="broken"), "image", "FAIL", "broken"),
        (with_module(GOOD, Module(name="torch")), "torch", "FAIL", "claims it, and it is not installed"),
        (with_module(GOOD, Module(name="torch", installed="2.8.0", error="OSError: libx.so: no file")),
         "torch", "FAIL", "libx.so"),
        (with_module(GOOD, Module(name="torch", installed="2.8.0", error="ImportError: libcuda.so.1: no")),
         "torch", "SKIP", "driver"),
        (with_blocks(GOOD, torch={"version": "2.9.1"}), "torch", "FAIL", "the image claims 2.9.1"),
        (with_module(GOOD, CUDA), "torch", "PASS", "CUDA 12.8, cuDNN 9.10.2, NCCL 2.27.3, 0 GPUs here"),
        (with_module(GOOD, CUDA), "nccl", "PASS", "torch loads 2.27.3"),
        (replace(with_module(GOOD, CUDA), system_nccl=("/usr/lib/libnccl.so.2.21.5",)), "nccl", "WARN",
         "a second one lies beside it: /usr/lib/libnccl.so.2.21.5"),
        (replace(GOOD, mpi=Launcher(error="no MPI is installed")), "mpi", "FAIL", "no MPI is installed"),
        (replace(GOOD, mpi=Launcher(error="no MPI is installed")), "ranks", "SKIP", "no MPI"),
        (with_blocks(GOOD, mpi={"kind": "mpich"}), "mpi", "FAIL", "claims mpich"),
        (replace(GOOD, mpi=replace(GOOD.mpi, library="/opt/openmpi/lib/libmpi.so.40")), "mpi4py", "WARN",
         "mpirun belongs to /opt/openmpi/lib/libmpi.so.40"),
        (replace(GOOD, providers=()), "providers", "FAIL", "no provider"),
        (replace(GOOD, missing={"/opt/venv/torch/lib/a.so": ("libz.so.9",)}), "libraries", "FAIL",
         "libz.so.9"),
        (replace(GOOD, missing={"/opt/venv/torch/lib/a.so": ("libcuda.so.1",)}), "libraries", "PASS",
         "nothing missing but the host's driver"),
        (replace(GOOD, missing={"/v/nvidia/cufile/lib/b.so": ("libmlx5.so.1",)}), "libraries", "WARN",
         "libmlx5.so.1"),
        (replace(GOOD, ldd_error="there is no ldd here"), "libraries", "SKIP", "no ldd"),
        (replace(with_blocks(GOOD, account={"name": "root"}),
         account=Account(uid=0, name="root", home="/root")), "user", "PASS", "as the recipe wants"),
        (replace(GOOD, account=replace(GOOD.account, home_error="Read-only file system")), "home", "WARN",
         "Read-only"),
        (replace(GOOD, account=replace(GOOD.account, memlock_soft=65536)), "memlock", "WARN", "memory|MiB"),
        (replace(GOOD, two_ranks=replace(GOOD.two_ranks, ranks={**RANKS, "memlock": 65536})), "memlock",
         "WARN", "in a rank over ssh"),
        (replace(GOOD, keys=(Key(path="/k", mounted=False),)), "keys", "FAIL", "/k"),
        (replace(GOOD, manifest=None, keys=(Key(path="/k", mounted=False),)), "keys", "WARN", "/k"),
        (replace(with_blocks(GOOD, sshd={"keys": "in-image"}), keys=(Key(path="/k", mounted=False),)),
         "keys", "FAIL", "/k"),
        (replace(GOOD, pip_sources=("/etc/pip.conf: index-url = http://m/",)), "pip", "FAIL", "http://m/"),
        (replace(GOOD, manifest=None, pip_sources=("/etc/pip.conf: index-url = http://m/",)), "pip", "SKIP",
         "http://m/"),
        (replace(GOOD, manifest={**GOOD.manifest, "mirrors_kept": True},
         pip_sources=("/etc/pip.conf: index-url = http://m/",), apt_hosts=("m",)), "pip", "PASS",
         "as the recipe wants"),
        (replace(GOOD, apt_hosts=("mirror.example.org",)), "apt", "WARN", "mirror.example.org"),
        (replace(GOOD, two_ranks=replace(GOOD.two_ranks, training={"jax": "", "keras": "died"})),
         "training keras", "FAIL", "died|training_step keras"),
        (replace(GOOD, two_ranks=TwoRankTest(over="local", ranks=RANKS)), "sshd", "FAIL", "not installed"),
        (replace(GOOD,
         two_ranks=replace(GOOD.two_ranks, start_error="Missing privilege separation directory")), "sshd",
         "FAIL", "does not start with /etc/ssh/sshd_config"),
        (replace(GOOD, two_ranks=replace(GOOD.two_ranks, login_error="account is locked")), "login", "FAIL",
         "locked"),
        (replace(GOOD, account=Account(uid=0, name="root", home="/root"),
         two_ranks=replace(GOOD.two_ranks, login_error="not listed in AllowUsers")), "login", "WARN",
         "only trainer is"),
        (replace(GOOD, two_ranks=replace(GOOD.two_ranks, ranks={}, ranks_error="it ended with 3")), "ranks",
         "FAIL", "it ended with 3"),
        (replace(GOOD, two_ranks=replace(GOOD.two_ranks, over="local")), "ranks", "PASS",
         "locally, without sshd"),
    ],
)  # fmt: skip
def test_cases(facts: Facts, id: str, level: str, words: str) -> None:
    found = finding(facts, id)
    assert found.verdict.upper() == level, found
    assert any(word in found.seen for word in words.split("|")), found


def test_hints_name_what_helps() -> None:
    locked = replace(GOOD, two_ranks=replace(GOOD.two_ranks, login_error="because account is locked"))
    assert "usermod -p '*'" in finding(locked, "login").remedy
    nobody = replace(GOOD, two_ranks=replace(GOOD.two_ranks, start_error="no privilege separation user"))
    assert "/run/sshd" in finding(nobody, "sshd").remedy
    unknown = replace(GOOD, two_ranks=replace(GOOD.two_ranks, start_error="No user exists for uid 7"))
    assert "/etc/passwd" in finding(unknown, "sshd").remedy
