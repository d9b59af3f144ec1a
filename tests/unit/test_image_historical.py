"""Historical recipes: each version stands where it takes effect, in the order in which it must."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ringleader.errors import RequestError
from ringleader.images import bundled_recipes, image_assembly, recipe_parser
from ringleader.images.instructions import Command, Copy, Env, Expose, Image, Run, Stage

VERBS = "tensorflow-1.12-verbs"
HOROVOD = "horovod-0.11"
ALL = "all-frameworks-2019"
HISTORICAL = (VERBS, HOROVOD, ALL)
PIP = "-m pip install --no-cache-dir --disable-pip-version-check"


def made(name: str, *settings: str) -> Image:
    return image_assembly.image(recipe_parser.recipe(bundled_recipes.text(name), name, settings))


def runs(stage: Stage) -> list[str]:
    return [command for step in stage.steps if isinstance(step, Run) for command in step.commands]


def the(stage: Stage, *parts: str) -> str:
    """The one command of a stage in which all these parts are."""
    found = [command for command in runs(stage) if all(part in command for part in parts)]
    assert len(found) == 1, (parts, found)
    return found[0]


def position(stage: Stage, part: str) -> int:
    """The number of the first step that runs something with this part."""
    return next(
        number
        for number, step in enumerate(stage.steps)
        if isinstance(step, Run) and any(part in command for command in step.commands)
    )


def packages(stage: Stage) -> list[str]:
    """What the stage's one call of apt-get for all blocks installs."""
    return the(stage, "apt-get install", "python").split("--no-install-recommends ")[1].split()


def in_order(stage: Stage, *parts: str) -> None:
    """Each part is in one command, and these commands follow each other."""
    commands = runs(stage)
    places = [[number for number, command in enumerate(commands) if part in command] for part in parts]
    assert all(places), (parts, places)
    assert all(before[-1] < after[0] for before, after in pairwise(places)), list(
        zip(parts, places, strict=True)
    )


@pytest.mark.parametrize("name", HISTORICAL)
def test_historical_recipes_say_so_and_get_nothing_of_today(name: str) -> None:
    recipe = recipe_parser.recipe(bundled_recipes.text(name), name)
    assert recipe.historical
    assert not {"ringleader", "account"} & set(recipe.blocks)
    final = made(name).stages[-1]
    assert not any("venv" in command for command in runs(final))
    assert made(name).test == ("/usr/local/bin/image-selftest",)


@pytest.mark.parametrize("name", HISTORICAL)
def test_nvidias_repositories_are_known_by_todays_keys_before_anything_is_installed(name: str) -> None:
    for stage in made(name).stages:
        in_order(
            stage,
            "rm -f /etc/apt/sources.list.d/cuda.list",
            "/compute/cuda/repos/ubuntu1604/x86_64/3bf863cc.pub",
            "/compute/machine-learning/repos/ubuntu1604/x86_64/7fa2af80.pub",
            "libcudnn7=",
        )
        assert "--allow-downgrades --allow-change-held-packages" in the(stage, "libcudnn7=")


class TestTensorflowFromSource:
    def test_it_is_compiled_in_a_devel_image_and_its_wheel_handed_to_a_runtime_image(self) -> None:
        build, final = made(VERBS).stages
        assert build.base == "nvidia/cuda:9.0-devel-ubuntu16.04"
        assert final.base == "nvidia/cuda:9.0-runtime-ubuntu16.04"
        wheel = "/opt/built/tensorflow-1.12.0-cp35-cp35m-linux_x86_64.whl"
        assert f"test -f {wheel}" in runs(build)
        handed = [step for step in final.steps if isinstance(step, Copy)]
        assert [(step.stage, step.sources, step.target) for step in handed] == [
            ("build", (wheel,), "/opt/built/")
        ]
        assert the(final, PIP, wheel).endswith(f" {wheel}")
        installed = [
            number
            for number, step in enumerate(final.steps)
            if isinstance(step, Run) and wheel in step.commands[0]
        ]
        assert final.steps.index(handed[0]) < installed[0]

    def test_the_configuration_is_answered_by_variables_before_it_runs(self) -> None:
        build, final = made(VERBS).stages
        answers = next(step for step in build.steps if isinstance(step, Env))
        values = dict(answers.variables)
        assert values["TF_NEED_VERBS"] == values["TF_NEED_GDR"] == values["TF_NEED_CUDA"] == "1"
        assert values["TF_CUDA_VERSION"] == "9.0"
        assert values["TF_CUDNN_VERSION"] == "7"
        assert values["TF_NCCL_VERSION"] == "2"
        assert values["PYTHON_BIN_PATH"] == "/usr/bin/python3.5"
        assert values["TF_CUDA_COMPUTE_CAPABILITIES"] == "3.5,5.2,6.0,6.1,7.0"
        assert (
            values["TF_NEED_MPI"] == values["TF_NEED_TENSORRT"] == values["TF_SET_ANDROID_WORKSPACE"] == "0"
        )
        compiled = next(
            number
            for number, step in enumerate(build.steps)
            if isinstance(step, Run) and any("./configure" in command for command in step.commands)
        )
        assert build.steps.index(answers) < compiled
        assert not any(isinstance(step, Env) for step in final.steps)

    def test_the_servers_are_given_to_bazel_too_which_alone_reads_them_in_some_releases(self) -> None:
        build, _ = made(VERBS).stages
        assert (
            "bazel build --config=opt --config=cuda "
            "--define=with_verbs_support=true --define=with_gdr_support=true "
            "//tensorflow/tools/pip_package:build_pip_package"
        ) in the(build, "bazel build")
        without, _ = made(VERBS, "tensorflow-source.gdr=false").stages
        assert "with_gdr_support" not in the(without, "bazel build")
        assert (
            dict(next(step for step in without.steps if isinstance(step, Env)).variables)["TF_NEED_GDR"]
            == "0"
        )

    def test_everything_is_there_before_it_is_compiled(self) -> None:
        build, _ = made(VERBS).stages
        in_order(
            build,
            "libnccl-dev=",
            "keras_applications==1.0.6",
            "bazel-0.15.0-installer-linux-x86_64.sh",
            "sha256sum --check",
            "bash /opt/build/bazel.sh",
            "git clone --depth 1 --branch v1.12.0 https://github.com/tensorflow/tensorflow.git",
            "ldconfig /usr/local/cuda/lib64/stubs",
            "./configure",
        )
        assert runs(build)[-1] == "ldconfig"

    def test_libraries_are_in_both_stages_and_headers_and_compilers_only_in_the_first(self) -> None:
        build, final = made(VERBS).stages
        libraries = {"libcudnn7=7.4.1.5-1+cuda9.0", "libnccl2=2.3.7-1+cuda9.0", "libibverbs1", "librdmacm1"}
        headers = {
            *("libcudnn7-dev=7.4.1.5-1+cuda9.0", "libnccl-dev=2.3.7-1+cuda9.0"),
            *("libibverbs-dev", "librdmacm-dev", "python3.5-dev", "build-essential"),
        }
        assert libraries | headers <= set(packages(build))
        assert libraries <= set(packages(final))
        assert not headers & set(packages(final))

    def test_mellanoxs_user_space_takes_the_place_of_the_distributions_in_both_stages(self) -> None:
        for stage in made(VERBS, "rdma.user-space=mlnx-ofed").stages:
            assert not {"libibverbs1", "libibverbs-dev", "librdmacm1", "libmlx5-1"} & set(packages(stage))
            in_order(
                stage,
                "MLNX_OFED-4.5-1.0.1.0/MLNX_OFED_LINUX-4.5-1.0.1.0-ubuntu16.04-x86_64.tgz",
                "mlnxofedinstall --user-space-only --without-fw-update",
                PIP,
            )

    def test_a_wheel_for_python_2_has_the_tag_that_python_2_gives(self) -> None:
        _, final = made(VERBS, "python.version=2.7").stages
        assert "tensorflow-1.12.0-cp27-cp27mu-linux_x86_64.whl" in the(final, PIP, "/opt/built/")

    @pytest.mark.parametrize(
        ("settings", "where"),
        [
            (("tensorflow-source.version=2.4.0",), "tensorflow-source.version"),
            (("historical=false",), "tensorflow-source"),
        ],
    )
    def test_what_was_never_built_so_is_refused(self, settings: tuple[str, ...], where: str) -> None:
        with pytest.raises(RequestError) as caught:
            made(VERBS, *settings)
        assert where in [fault.where for fault in caught.value.faults]


class TestHorovod:
    def test_one_stage_on_the_devel_image(self) -> None:
        (final,) = made(HOROVOD).stages
        assert final.base == "nvidia/cuda:9.0-devel-ubuntu16.04"

    def test_libraries_are_pinned(self) -> None:
        (final,) = made(HOROVOD).stages
        wanted = {"libcudnn7=7.0.5.15-1+cuda9.0", "libnccl2=2.1.15-1+cuda9.0", "libnccl-dev=2.1.15-1+cuda9.0"}
        assert wanted <= set(packages(final))
        assert {"python2.7", "python2.7-dev", "python-pip", "openssh-server"} <= set(packages(final))

    def test_horovod_is_compiled_last_against_all_that_it_needs_with_cudas_stubs(self) -> None:
        (final,) = made(HOROVOD).stages
        in_order(
            final,
            "libnccl-dev=2.1.15-1+cuda9.0",
            "https://download.open-mpi.org/release/open-mpi/v3.0/openmpi-3.0.0.tar.bz2",
            "sha256sum --check",
            "./configure --prefix=/usr/local --enable-orterun-prefix-by-default",
            "ldconfig /usr/local/cuda/lib64/stubs",
            "pip==20.3.4",
            "gast==0.2.0",
            "tensorflow-gpu==1.6.0",
            "horovod==0.11.2",
        )
        assert the(final, PIP, "horovod==").startswith("HOROVOD_GPU_ALLREDUCE=NCCL /usr/bin/python2.7 ")
        assert runs(final)[-1] == "ldconfig"

    def test_mpirun_runs_as_root_and_binds_nothing(self) -> None:
        (final,) = made(HOROVOD).stages
        assert 'mpirun.real --allow-run-as-root "$@"' in the(final, "> /usr/local/bin/mpirun")
        parameters = the(final, "openmpi-mca-params.conf")
        assert "hwloc_base_binding_policy = none" in parameters
        assert "rmaps_base_mapping_policy = slot" in parameters

    @pytest.mark.parametrize("port", [12345, 2022])
    def test_ssh_is_on_the_port_of_the_recipes_choice_on_both_sides(self, port: int) -> None:
        (final,) = made(HOROVOD, f"sshd.port={port}").stages
        assert f"s/^#*Port .*/Port {port}/" in the(final, "/etc/ssh/sshd_config")
        client = the(final, "printf", "/etc/ssh/ssh_config")
        assert f"'    Port {port}'" in client
        assert "'    StrictHostKeyChecking no'" in client
        assert [step.port for step in final.steps if isinstance(step, Expose)] == [port]
        assert [step.argv for step in final.steps if isinstance(step, Command)] == [
            ("/usr/sbin/sshd", "-D", "-p", str(port))
        ]

    def test_the_recipe_itself_says_12345_and_keys_that_are_mounted(self) -> None:
        (final,) = made(HOROVOD).stages
        assert [step.port for step in final.steps if isinstance(step, Expose)] == [12345]
        assert not any("ssh-keygen" in command for command in runs(final))


class TestAllFrameworks:
    def test_libraries_compilers_and_interpreter(self) -> None:
        (final,) = made(ALL).stages
        assert final.base == "nvidia/cuda:9.0-devel-ubuntu16.04"
        wanted = {
            "libcudnn7=7.4.1.5-1+cuda9.0",
            "libnccl2=2.3.7-1+cuda9.0",
            "gcc-4.9",
            "g++-4.9",
            "python3.5",
        }
        assert wanted <= set(packages(final))
        for name in ("gcc", "g++"):
            link = f"update-alternatives --install /usr/bin/{name} {name} /usr/bin/{name}-4.9 100"
            assert link in runs(final)
        in_order(final, "/usr/bin/gcc-4.9 100", PIP)

    def test_frameworks_go_into_that_interpreter_after_the_pins(self) -> None:
        (final,) = made(ALL).stages
        for part in ("tensorflow-gpu==1.12.0", "mxnet-cu90==1.4.1", "torch==1.3.0", "torchvision==0.4.1"):
            assert the(final, PIP, part).startswith("/usr/bin/python3.5 ")
            in_order(final, "pip==20.3.4", "numpy==1.14.6", part)

    def test_pytorch_is_the_wheel_for_cuda_9_2_as_there_is_none_for_9_0(self) -> None:
        (final,) = made(ALL).stages
        assert the(final, PIP, "torch==").endswith(
            "--find-links https://download.pytorch.org/whl/torch_stable.html "
            "torch==1.3.0+cu92 torchvision==0.4.1+cu92"
        )

    def test_ssh_asks_for_no_password(self) -> None:
        (final,) = made(ALL).stages
        in_order(
            final,
            "install -d -m 0700 /root/.ssh",
            "ssh-keygen -q -t rsa -b 2048 -N '' -f /root/.ssh/id_rsa",
            "cp /root/.ssh/id_rsa.pub /root/.ssh/authorized_keys",
        )

    def test_mounted_keys_leave_no_key_in_the_image(self) -> None:
        (final,) = made(ALL, "sshd.keys=mounted").stages
        assert not any("ssh-keygen" in command for command in runs(final))


class TestWhatHasNoEffectIsRefused:
    @pytest.mark.parametrize(
        ("name", "setting", "where"),
        [
            (HOROVOD, "python.source=conda", "python.source"),
            (ALL, "packages.lock=requirements.lock", "packages.lock"),
            (ALL, "account.name=trainer", "account.name"),
            (HOROVOD, "mpi.kind=mpich", "mpi.kind"),
            (HOROVOD, "mpi.version=", "mpi.version"),
            (HOROVOD, "nccl.source=build", "nccl.source"),
            (HOROVOD, "nccl.tests=true", "nccl.tests"),
            (HOROVOD, "mpi.version=9.9.9", "mpi.version"),
            (VERBS, "tensorflow-source.bazel=0.15.9", "tensorflow-source.bazel"),
            (VERBS, "rdma.user-space=efa", "rdma.user-space"),
            (VERBS, "rdma.user-space=doca-ofed", "rdma.user-space"),
            (VERBS, "rdma.version=17.1", "rdma.version"),
        ],
    )
    def test_one_message_that_names_the_key(self, name: str, setting: str, where: str) -> None:
        with pytest.raises(RequestError) as caught:
            made(name, setting)
        (fault,) = caught.value.faults
        assert where in f"{fault.where} {fault.what}"
        assert fault.hint

    def test_packages_of_one_cuda_need_a_base_that_has_it(self) -> None:
        text = 'name = "x"\nhistorical = true\nbase = "ubuntu:16.04"\n[cudnn]\nversion = "7.4.1.5"\n'
        with pytest.raises(RequestError) as caught:
            recipe_parser.recipe(text, "x.toml")
        assert "ubuntu:16.04 has none" in caught.value.faults[0].what

    @pytest.mark.parametrize(
        "block",
        ['[torch]\nversion = "1.3.0"', '[packages]\npip = ["numpy==1.14.6"]', '[mxnet]\nversion = "1.4.1"'],
    )
    def test_what_pip_installs_needs_a_python(self, block: str) -> None:
        text = f'name = "x"\nhistorical = true\nbase = "ubuntu:16.04"\n{block}\n'
        with pytest.raises(RequestError) as caught:
            recipe_parser.recipe(text, "x.toml")
        assert "the image has no Python" in caught.value.faults[0].what
        assert recipe_parser.recipe(f"{text}[python]\n", "x.toml").blocks


def test_without_the_block_cuda_the_first_that_needs_them_brings_nvidias_repositories() -> None:
    text = (
        'name = "x"\nhistorical = true\nbase = "nvidia/cuda:9.0-devel-ubuntu16.04"\n'
        '[cudnn]\nversion = "7.4.1.5"\n[nccl]\nversion = "2.3.7"\n[python]\n'
    )
    (final,) = image_assembly.image(recipe_parser.recipe(text, "x.toml")).stages
    in_order(
        final, "repos/ubuntu1604/x86_64/3bf863cc.pub", "libcudnn7=7.4.1.5-1+cuda9.0 libnccl2=2.3.7-1+cuda9.0"
    )


def test_wheels_of_the_build_context_are_the_only_place_to_look_for_every_install() -> None:
    for stage in made(VERBS, "packages.wheels=wheels").stages:
        calls = [command for command in runs(stage) if PIP in command]
        assert calls
        assert all(" --no-index --find-links " in call for call in calls)
    (final,) = made(ALL, "packages.wheels=wheels").stages
    assert not any("torch_stable.html" in command for command in runs(final))


def test_the_distributions_open_mpi_may_be_pinned() -> None:
    (final,) = made(HOROVOD, "mpi.source=base", "mpi.version=1.10.2").stages
    assert {"'openmpi-bin=1.10.2*'", "'libopenmpi-dev=1.10.2*'"} <= set(packages(final))
