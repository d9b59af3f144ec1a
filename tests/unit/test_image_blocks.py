"""Blocks: what each gives to the build and to the image, in a table of recipes; and what they fetch."""

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.unit.image_world import ROOT, image_of_words

from ringleader.errors import RequestError
from ringleader.images import bundled_recipes, image_assembly, recipe_parser
from ringleader.images.blocks.downloads import fetched, projects, release
from ringleader.images.blocks.system import DEPENDENCIES, EXTRAS, LOCK, OWN_MPI
from ringleader.images.check import Level, check, selection_of
from ringleader.images.instructions import Command, Copy, Env, Expose, Image, Run, User
from ringleader.images.tables import load

PROFILES = bundled_recipes.names()
CUDA = "base=nvidia/cuda:12.8.1-devel-ubuntu24.04"
SHA = "ab" * 32
HOROVOD = (
    "base=nvidia/cuda:11.8.0-base-ubuntu22.04 build-base=nvidia/cuda:11.8.0-devel-ubuntu22.04"
    " cuda.version=11.8.0 nccl.version=2.16.5 mpi.kind=openmpi torch.version=2.0.1 torch.variant=cu118"
    " horovod.version=0.28.1 horovod.gpu-operations=nccl"
)
PIP = "/opt/venv/bin/python -m pip install "


def commands(image: Image, stage: int = -1) -> str:
    found = [one for step in image.stages[stage].steps if isinstance(step, Run) for one in step.commands]
    return "\n".join(found)


def steps(image: Image, kind: type, stage: int = -1) -> list:
    return [step for step in image.stages[stage].steps if isinstance(step, kind)]


def variables(image: Image, stage: int = -1) -> dict[str, str]:
    return {name: value for step in steps(image, Env, stage) for name, value in step.variables}


CASES = [
    # a recipe; what is in the commands of the build stage (b+), of the image (i+), and what is not (b-, i-)
    ("rdma.user-space=rdma-core", "i+ libibverbs1 librdmacm1 ", "i- perftest"),
    ("base=ubuntu:24.04 rdma.user-space=rdma-core", "i+ librdmacm1t64 ", "i- librdmacm1 "),
    ("rdma.user-space=rdma-core rdma.tools=true", "i+ perftest", "i- -dev"),
    ("rdma.user-space=rdma-core rdma.version=44.0", "i+'libibverbs1=44.0*'", "i- libibverbs1 "),
    ("base=ubuntu:24.04 rdma.user-space=doca-ofed", "i+ librdmacm1 ", "i- librdmacm1t64", "i- curl"),
    ("base=ubuntu:24.04 rdma.user-space=doca-ofed rdma.version=3.1.0",
     "b+[signed-by=/usr/share/keyrings/doca.asc] https://linux.mellanox.com/public/repo/doca/3.1.0/ubuntu24.04/x86_64/"),
    ("base=ubuntu:22.04 rdma.user-space=erdma", "i+ libibverbs1 ", "i- curl"),
    ("mpi.kind=openmpi", "i+openmpi-bin", "i- libopenmpi-dev", "b-openmpi>=", "i-OMPI_ALLOW"),
    ("mpi.version=4.1.4", "i+'openmpi-bin=4.1.4*'", "i- openmpi-bin "),
    ("", "b+openmpi>=", "i+install -d -m 0755 -o 1000 -g 1000 /home/trainer",
     "i+install -d -m 0700 -o 1000 -g 1000 /home/trainer/.ssh"),
    ("torch.version=2.8.0 torch.variant=cpu", "b+python3 -m venv /opt/venv", "i- pip install "),
    ("base=ubuntu:22.04 python.version=3.11", "b+python3.11 -m venv /opt/venv", "i+python3.11"),
    ("base=ubuntu:22.04 python.source=conda python.version=3.12 packages.conda=ffmpeg",
     "b+conda create --yes --prefix /opt/venv --override-channels",
     "b+ --channel conda-forge python=3.12 pip ffmpeg ",
     "i- python3"),
    ("torch.version=2.8.0 torch.variant=cpu torch.torchvision=0.23.0",
     "b+--index-url https://download.pytorch.org/whl/cpu torch==2.8.0 torchvision==0.23.0"),
    (f"{CUDA} cuda.version=12.8.1 torch.version=2.8.0 mpi.kind=openmpi", "i+:/usr/local/cuda/bin:"),
    ("tensorflow.version=2.18.1 tensorflow.gpu=false", "b+tensorflow-cpu==2.18.1", "i-nvidia"),
    ("torch.version=2.10.0 tensorflow.version=2.20.0", "b+'tensorflow[and-cuda]==2.20.0' torch==2.10.0"),
    ("account.name=alice account.uid=1234",
     "i+useradd --uid 1234 --gid 1234 --create-home --shell /bin/bash --password '*' alice"),
    ("account.name=root mpi.kind=openmpi", "i+usermod --password '*' root", "i-useradd"),
    ("base=ubuntu:24.04 account.uid=2000", "i-userdel"),
    (f"{CUDA} cuda.version=12.8.1 ucx.source=build ucx.cuda=true mpi.source=build rdma.user-space=rdma-core",
     "b+--with-ucx=/opt/ucx", "b+--with-cuda=/usr/local/cuda --with-cuda-libdir=/usr/local/cuda/lib64/stubs",
     "b+--enable-prte-prefix-by-default", "b+libibverbs-dev", "i-libibverbs-dev", "i+/opt/openmpi/lib",
     "i+SetEnv PATH=/opt/venv/bin:/opt/openmpi/bin:/opt/ucx/bin:",
     "i+'export PATH=/opt/venv/bin:/opt/openmpi/bin:/opt/ucx/bin:", "i-LD_LIBRARY_PATH"),
    ("mpi.source=build mpi.version=4.1.8", "b+--enable-orterun-prefix-by-default", "b+--without-verbs"),
    ("mpi.kind=mpich mpi.source=build ucx.source=base", "b+--with-device=ch4:ucx", "b+libucx-dev"),
    ("base=ubuntu:22.04 python.version=3.11 mpi.source=build rdma.user-space=efa",
     "b+--with-ofi=/opt/amazon/efa",
     "b+efa_installer.sh -y --skip-kmod --skip-limit-conf --no-verify --skip-mpi",
     "i+efa_installer.sh -y --skip-kmod --skip-limit-conf --no-verify --skip-mpi"),
    (f"{CUDA} nccl.version=2.27.7 nccl.tests=true mpi.source=build", "i+'libnccl2=2.27.7-1+cuda12.*'",
     "i-libnccl-dev", "b+MPI=1 MPI_HOME=/opt/openmpi"),
    (f"{CUDA} nccl.version=2.27.7 nccl.source=build",
     "b+src.install CUDA_HOME=/usr/local/cuda PREFIX=/opt/nccl", "i+apt-get install", "i-libnccl"),
    # Horovod, what it is compiled with, and what stays out of the image
    (HOROVOD, f"b+HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_WITH_PYTORCH=1 {PIP}", "b+--no-build-isolation",
     "b+ build-essential cmake ", "b+ libopenmpi-dev ", "b+ python3-dev", "b+'libnccl-dev=2.16.5-1+cuda11.*'",
     "b+'libnccl2=2.16.5-1+cuda11.*'", "i+'libnccl2=2.16.5-1+cuda11.*'", "i-horovod==", "i--dev"),
    (f"{HOROVOD} horovod.version=0.19.2", f"b+HOROVOD_GPU_ALLREDUCE=NCCL HOROVOD_WITH_PYTORCH=1 {PIP}"),
    (f"{HOROVOD} horovod.version=0.12.1", f"b+HOROVOD_GPU_ALLREDUCE=NCCL {PIP}"),
    (f"{HOROVOD} mxnet.version=1.9.1",
     f"b+HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_MXNET=1 {PIP}", "b+ mxnet==1.9.1"),
    (f"{HOROVOD} horovod.gpu-operations=", "b-HOROVOD_GPU", "b-stubs"),
    (f"{HOROVOD} cudnn.version=8.9.6.50", "b+libcudnn8-dev=8.9.6.50-1+cuda11.8 libcudnn8=8.9.6.50-1+cuda11.8",
     "i+libcudnn8=8.9.6.50-1+cuda11.8", "i-libcudnn8-dev"),
    ("base=nvidia/cuda:10.1-base-ubuntu18.04 cuda.version=10.1 cudnn.version=7.6.5.32",
     "i+ libcudnn7=7.6.5.32-1+cuda10.1 ", "i-libcudnn7-dev", "b-libcudnn7"),
    (f"{CUDA} cuda.version=12.8.1 cudnn.version=9.10.2.21 cudnn.dev=true",
     "i+ libcudnn9-cuda-12=9.10.2.21-1 libcudnn9-dev-cuda-12=9.10.2.21-1 "),
    ("gcc.version=11", "b+ g++-11 gcc-11 ", "i-g++-11",
     "b+update-alternatives --install /usr/bin/g++ g++ /usr/bin/g++-11 100"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), [(one[0], one[1:]) for one in CASES])
def test_what_a_stage_does(words: str, said: tuple[str, ...]) -> None:
    image = image_of_words(words)
    assert len(image.stages) == 2
    found = {"b": commands(image, 0), "i": commands(image)}
    stages = {stage: f" {text} ".replace("\n", " \n ") for stage, text in found.items()}
    for one in said:
        stage, is_there, text = one[0], one[1] == "+", one[2:]
        assert (text in stages[stage]) == is_there, (one, stages[stage])


def test_a_lock_is_all_that_pip_installs_besides_ringleader() -> None:
    image = image_of_words("torch.version=2.8.0 packages.pip=pandas packages.lock=image.lock")
    locked, itself = (one for one in commands(image, 0).splitlines() if " pip install " in one)
    assert locked.endswith("--require-hashes --no-deps --requirement /opt/build/requirements.lock")
    assert "--no-deps --no-index" in itself
    assert "image.lock" in image.context


@pytest.mark.process
def test_a_lock_with_addresses_needs_no_network_where_all_wheels_are_there(tmp_path: Path) -> None:
    image = image_of_words("torch.version=2.8.0 packages.wheels=wheels packages.lock=image.lock")
    (edit,) = (one for one in commands(image, 0).splitlines() if one.startswith("sed "))
    own = "https://download.pytorch.org/whl/cu128/torch-2.8.0%2Bcu128-cp311-cp311-manylinux_2_28_x86_64.whl"
    kept = (
        f"# me @ x\nnumpy==2.0 --hash=sha256:{SHA}\nmy-tool @ https://x/my-tool-1.tar.gz --hash=sha256:{SHA}"
    )
    lock = tmp_path / "lock"
    lock.write_text(f"{kept}\ntorch @ {own} --hash=sha256:{SHA}\n")
    subprocess.run(shlex.split(edit.replace(LOCK, str(lock))), check=True)
    assert lock.read_text() == f"{kept}\ntorch==2.8.0+cu128 --hash=sha256:{SHA}\n"
    unchanged = image_of_words("torch.version=2.8.0 packages.lock=image.lock")
    assert "sed " not in commands(unchanged, 0)


def test_ringleaders_dependencies_are_those_of_its_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plain = {one.partition(";")[0].strip() for one in project["dependencies"]}
    assert {*DEPENDENCIES, OWN_MPI} == plain
    for extra, wanted in EXTRAS.items():
        assert set(wanted) == set(project["optional-dependencies"][extra])


NCCL = "base=ubuntu:24.04 nccl.version=2.27.7"
CONDA = "base=ubuntu:24.04 python.source=conda python.version=3.13"


@pytest.mark.parametrize(
    ("words", "stage", "there"),
    [
        ("base=ubuntu:24.04 rdma.user-space=doca-ofed rdma.version=3.3.0", 0, "/ubuntu24.04/arm64-sbsa/ ./"),
        ("base=ubuntu:24.04 rdma.user-space=mlnx-ofed", -1, "-ubuntu24.04-aarch64.tgz"),
        (CONDA, 0, "-Linux-aarch64.sh"),
        (CONDA, 0, "2c113a69297e612b01ca0f320c22a3107a11f2ab9b57"),
        (NCCL, 0, "/compute/cuda/repos/ubuntu2404/sbsa/ /'"),
        (NCCL, 0, "rm /etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.list"),
    ],
)  # fmt: skip
def test_vendors_name_arm_machines_in_their_own_ways(words: str, stage: int, there: str) -> None:
    found = commands(image_of_words(words, machine="aarch64"), stage)
    assert there in found
    for known in ("cuda-ubuntu2404-x86_64", "ubuntu2404/x86_64/cuda-keyring"):
        found = found.replace(known, "")
    assert "x86_64" not in found
    assert "aarch64" not in commands(image_of_words(words), stage)


ODD = [
    ("machine=aarch64 base=ubuntu:22.04 rdma.user-space=erdma", "linux/amd64 only, not for aarch64"),
    ("sshd.keys=in-image", "'in-image' is not one of mounted"),
    ("packages.conda=ffmpeg", "no conda in the image"),
    ("account.name=www-data", "of the system already"),
    ("account.uid=33", "1000"),
    (f"mpi.sha256={SHA}", "nothing is fetched"),
    ("base=ubuntu:24.04 rdma.user-space=erdma rdma.version=1", "one version"),
    ("ucx.cuda=true", "no GPU memory"),
    ("base=ubuntu:26.04 nccl.version=2.27.7", "no repository of NVIDIA"),
    ("base=ubuntu:24.04 rdma.user-space=efa libfabric.source=base", "its own libfabric"),
    ("base=ubuntu:24.04 rdma.user-space=doca-ofed rdma.version=77.0.0", "DOCA 77.0.0"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), ODD)
def test_nothing_is_ignored_in_silence(words: str, said: str) -> None:
    machine, words = ("aarch64", words[16:]) if words.startswith("machine=") else ("x86_64", words)
    with pytest.raises(RequestError, match=re.escape(said)):
        image_of_words(words, machine=machine)


def test_every_release_has_an_address_and_a_checksum_of_its_own() -> None:
    sums = [one for row in projects().values() for _, one in row.sha256]
    assert all(re.fullmatch(r"[0-9a-f]{64}", one) for one in sums) and len(sums) == len(set(sums))
    assert release("openmpi").version == "5.0.9", "without a version the newest is taken"
    for row in projects().values():
        assert row.source and (row.sha256 or row.versions)
        for version in row.known:
            one = release(row.name, version, system="ubuntu22.04")
            assert re.fullmatch(r"https://[a-z0-9.-]+/[A-Za-z0-9._/+-]+", one.url) and version in one.url
            assert ("sha256sum" in "\n".join(fetched(one, "/opt/build/x"))) == bool(row.sha256)


def test_a_release_that_nobody_has_seen_needs_a_checksum() -> None:
    for words in (
        "mpi.source=build mpi.version=77.0.0",
        "ucx.source=build ucx.version=77.0.0",
        "rdma.user-space=efa rdma.version=77.0.0",
    ):
        with pytest.raises(RequestError, match=r"no checksum of .* 77\.0\.0 is known"):
            image_of_words(words)
        image = image_of_words(f"{words} {words.partition('.')[0]}.sha256={SHA}")
        assert SHA in commands(image, 0) + commands(image)
        assert not [
            step for stage in (0, -1) for step in steps(image, Run, stage) if "Unverified" in step.why
        ]


@pytest.mark.parametrize("user_space", ["doca-ofed", "erdma"])
def test_the_key_of_a_repository_is_verified_where_a_recipe_gives_its_checksum(user_space: str) -> None:
    words = f"base=ubuntu:22.04 rdma.user-space={user_space}"
    for more, is_verified in (("", False), (f" rdma.sha256={SHA}", True)):
        image = image_of_words(words + more)
        assert ("sha256sum --check --strict /usr/share/keyrings/" in commands(image, 0)) == is_verified
        assert (f"{SHA}  /usr/share/keyrings/" in commands(image, 0)) == is_verified
        assert any("Unverified" in step.why for step in steps(image, Run, 0)) != is_verified
    handed = [step.sources[0] for step in steps(image, Copy) if step.stage == "build"]
    assert handed[0] == "/etc/ssl/certs/ca-certificates.crt"
    assert handed[1].startswith("/usr/share/keyrings/") and handed[2].startswith("/etc/apt/sources.list.d/")


@pytest.mark.parametrize("name", PROFILES)
def test_a_bundled_recipe_fits_is_small_verified_and_has_no_secret(name: str) -> None:
    recipe = recipe_parser.recipe(bundled_recipes.text(name), name)
    assert [one.what for one in check(selection_of(recipe), load()) if one.level is not Level.NOTE] == []
    image = image_assembly.image(recipe)
    last = commands(image)
    for line in last.splitlines():
        if "apt-get install" in line:
            assert "--no-install-recommends" in line
            assert not re.search(r"\b(build-essential|gcc|g\+\+|make)\b", line)
    assert not re.search(r"[a-z0-9]-dev\b", last)
    assert last.count("apt-get update") == last.count("rm -rf /var/lib/apt/lists/*")
    everything = "\n".join(commands(image, stage) for stage in range(len(image.stages)))
    for word in ("ssh-keygen", "PRIVATE KEY", "LD_LIBRARY_PATH", "apt-key", "trusted.gpg"):
        assert word not in everything
    assert all("--no-cache-dir" in one for one in everything.splitlines() if " pip install " in one)
    assert steps(image, User) == [User(name="1000:1000")]
    assert steps(image, Expose) == [Expose(port=2222)]
    assert steps(image, Command) == [Command(argv=("/usr/sbin/sshd", "-De", "-f", "/etc/ssh/sshd_config"))]
    for step in (one for stage in image.stages for one in stage.steps if isinstance(one, Run)):
        fetches = [one for one in step.commands if "curl " in one and "apt-get" not in one]
        keys = [one for one in fetches if "/usr/share/keyrings/" in one]
        verified = [one for one in step.commands if one.startswith("sha256sum --check --strict")]
        assert len(verified) == len(fetches) - len(keys), step.commands
