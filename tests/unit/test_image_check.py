"""What fits what: each rule with a recipe that breaks it and one next to it that does not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as some

from ringleader.cli.main import ringleader
from ringleader.finding import fault
from ringleader.images import bundled_recipes, recipe_parser
from ringleader.images.check import BAD, NOTHING_NEAR, Finding, Level, Selection, check, clashes, selection_of
from ringleader.images.check.versions import covers
from ringleader.images.tables import Cited, load
from ringleader.images.tables.version_order import key

UBUNTU = 'base = "ubuntu:24.04"\n'
CUDA = 'base = "nvidia/cuda:12.8.1-base-ubuntu24.04"\n'
DEVEL = 'build-base = "nvidia/cuda:{}-devel-ubuntu24.04"\n'
OLD = 'base = "nvidia/cuda:9.0-devel-ubuntu16.04"\n[python]\n'


def findings(text: str) -> tuple[Finding, ...]:
    return check(selection_of(recipe_parser.recipe(f'name = "x"\n{text}', "x.toml")), load())


def torch(version: str, **more: str) -> str:
    return f'[torch]\nversion = "{version}"\n' + "".join(
        f'{key} = "{value}"\n' for key, value in more.items()
    )


def tensorflow(version: str, more: str = "") -> str:
    return f'[tensorflow]\nversion = "{version}"\n{more}\n'


CASES = [
    # rule, level, a recipe that breaks it, one next to it that does not
    (
        "build-base",
        Level.FAULT,
        'build-base = "ubuntu:22.04"\n' + UBUNTU,
        'build-base = "ubuntu:noble"\n' + UBUNTU,
    ),
    ("build-base", Level.FAULT, 'build-base = "debian:12"\n' + OLD, 'build-base = "ubuntu:16.04"\n' + OLD),
    ("build-cuda", Level.FAULT, DEVEL.format("13.0.2") + CUDA, DEVEL.format("12.8.1") + CUDA),
    ("build-cuda", Level.WARNING, DEVEL.format("12.6.3") + CUDA, DEVEL.format("12.8.0") + CUDA),
    (
        *("apt-https", Level.WARNING, UBUNTU + '[mirrors]\napt = "https://apt.example.org"\n'),
        UBUNTU + '[mirrors]\napt = "http://apt.example.org"\n',
    ),
    (
        *("apt-https", Level.WARNING, 'base = "debian:12"\n[mirrors]\napt = "https://apt.example.org"\n'),
        CUDA + '[mirrors]\napt = "https://apt.example.org"\n',
    ),
    ("torch", Level.FAULT, UBUNTU + torch("2.8.7"), UBUNTU + torch("2.8.0")),
    ("torch-variant", Level.FAULT, UBUNTU + torch("2.8.0", variant="cu118"), UBUNTU + torch("2.8.0")),
    (
        *("torchvision", Level.FAULT, UBUNTU + torch("2.8.0", torchvision="0.22.0")),
        UBUNTU + torch("2.8.0", torchvision="0.23.0"),
    ),
    ("tensorflow", Level.FAULT, UBUNTU + tensorflow("2.21.5"), UBUNTU + tensorflow("2.21.0")),
    ("mxnet", Level.FAULT, OLD + '[mxnet]\nversion = "1.4.9"\n', OLD + '[mxnet]\nversion = "1.4.1"\n'),
    (
        *("mxnet", Level.FAULT, OLD + '[mxnet]\nversion = "1.4.1"\nvariant = "cu91"\n'),
        OLD + '[mxnet]\nversion = "1.4.1"\nvariant = "cu90"\n',
    ),
    (
        *("horovod", Level.FAULT, OLD + '[horovod]\nversion = "0.11.9"\n'),
        OLD + '[horovod]\nversion = "0.11.2"\n',
    ),
    (
        *("cuda", Level.FAULT, 'base = "nvidia/cuda:12.7.1-base-ubuntu24.04"\n' + torch("2.8.0")),
        CUDA + torch("2.8.0"),
    ),
    (
        *("nccl", Level.FAULT, CUDA + '[nccl]\nversion = "2.99.1"\n'),
        CUDA + '[nccl]\nversion = "2.27.7"\n',
    ),
    (
        *("cudnn", Level.WARNING, OLD + '[cudnn]\nversion = "7.9.9"\n'),
        OLD + '[cudnn]\nversion = "7.4.1.5"\n',
    ),
    ("gpu", Level.FAULT, 'gpus = ["h900"]\n' + UBUNTU + torch("2.8.0"), UBUNTU + torch("2.8.0")),
    (
        *(
            "mpi",
            Level.WARNING,
            UBUNTU + f'[mpi]\nversion = "9.0"\nsource = "build"\nsha256 = "{"ab" * 32}"\n',
        ),
        UBUNTU + '[mpi]\nversion = "5.0.8"\nsource = "build"\n',
    ),
    ("wheel-python", Level.FAULT, 'base = "ubuntu:26.04"\n' + torch("2.8.0"), UBUNTU + torch("2.8.0")),
    (
        "wheel-python",
        Level.FAULT,
        'base = "debian:13"\n' + tensorflow("2.19.1"),
        UBUNTU + tensorflow("2.19.1"),
    ),
    (
        *(
            "wheel-glibc",
            Level.FAULT,
            'base = "ubuntu:18.04"\n' + torch("2.8.0"),
        ),
        'base = "ubuntu:20.04"\n' + torch("2.8.0"),
    ),
    (
        *("image-cuda", Level.WARNING, 'base = "nvidia/cuda:13.0.2-base-ubuntu24.04"\n' + torch("2.8.0")),
        CUDA + torch("2.8.0"),
    ),
    (
        *("image-cuda", Level.FAULT, OLD + torch("1.3.0", variant="cu92")),
        OLD + torch("1.1.0", variant="cu90"),
    ),
    (
        *(
            "tensorflow-cuda",
            Level.FAULT,
            'base = "nvidia/cuda:13.0.2-base-ubuntu24.04"\n' + tensorflow("2.21.0"),
        ),
        CUDA + tensorflow("2.21.0"),
    ),
    (
        *("tensorflow-cuda", Level.FAULT, 'base = "debian:12"\n' + tensorflow("2.12.1")),
        'base = "debian:12"\n' + tensorflow("2.12.1", "gpu = false"),
    ),
    (
        *("tensorflow-cuda", Level.FAULT, OLD + tensorflow("1.13.1")),
        OLD + tensorflow("1.12.0"),
    ),
    (
        *("cudnn", Level.FAULT, OLD + tensorflow("1.12.0")),
        OLD + tensorflow("1.12.0") + '[cudnn]\nversion = "7.4.1.5"\n',
    ),
    (
        *("cudnn", Level.FAULT, OLD + tensorflow("1.12.0") + '[cudnn]\nversion = "8.1.1.33"\n'),
        OLD.replace("9.0-devel", "9.0-cudnn7-devel") + tensorflow("1.12.0"),
    ),
    (
        *("two-cudas", Level.FAULT, UBUNTU + torch("2.12.0") + tensorflow("2.21.0")),
        UBUNTU + torch("2.11.0", variant="cu128") + tensorflow("2.21.0"),
    ),
    (
        *("two-cudas", Level.FAULT, UBUNTU + torch("2.8.0") + tensorflow("2.19.1")),
        UBUNTU + torch("2.8.0") + tensorflow("2.19.1", "gpu = false"),
    ),
    (
        *("two-cudas", Level.FAULT, UBUNTU + torch("2.8.0") + tensorflow("2.21.0")),
        UBUNTU + torch("2.8.0") + tensorflow("2.20.0"),
    ),
    (
        *("horovod-torch", Level.FAULT, CUDA + torch("2.8.0") + '[horovod]\nversion = "0.28.1"\n'),
        CUDA + torch("2.0.1") + '[horovod]\nversion = "0.28.1"\n',
    ),
    (
        *("horovod-tensorflow", Level.FAULT, CUDA + tensorflow("2.16.2") + '[horovod]\nversion = "0.28.1"\n'),
        CUDA + tensorflow("2.12.1") + '[horovod]\nversion = "0.28.1"\n',
    ),
    (
        *(
            "horovod-tensorflow",
            Level.WARNING,
            CUDA + tensorflow("2.15.1") + '[horovod]\nversion = "0.28.1"\n',
        ),
        CUDA + tensorflow("2.12.1") + '[horovod]\nversion = "0.28.1"\n',
    ),
    (
        *("horovod-mpi", Level.FAULT, OLD + '[horovod]\nversion = "0.11.2"\n'),
        OLD + '[horovod]\nversion = "0.11.2"\n[mpi]\n',
    ),
    (
        *("horovod-build", Level.FAULT, CUDA + '[horovod]\nversion = "0.28.1"\ngpu-operations = "nccl"\n'),
        CUDA + 'build-base = "nvidia/cuda:12.8.1-devel-ubuntu24.04"\n'
        '[horovod]\nversion = "0.28.1"\ngpu-operations = "nccl"\n',
    ),
    (
        *("gpu-wheel", Level.FAULT, 'gpus = ["p100"]\n' + UBUNTU + torch("2.8.0")),
        'gpus = ["p100"]\n' + UBUNTU + torch("2.8.0", variant="cu126"),
    ),
    (
        *("gpu-cuda", Level.FAULT, 'gpus = ["b200"]\n' + UBUNTU + tensorflow("2.19.1")),
        'gpus = ["h100"]\n' + UBUNTU + tensorflow("2.19.1"),
    ),
    (
        *("gpu-cuda", Level.FAULT, 'gpus = ["v100"]\nbase = "nvidia/cuda:13.0.2-base-ubuntu24.04"\n'),
        'gpus = ["t4"]\nbase = "nvidia/cuda:13.0.2-base-ubuntu24.04"\n',
    ),
    (
        *("gpu-cuda", Level.FAULT, 'gpus = ["h100"]\n' + UBUNTU + torch("2.8.0", variant="cpu")),
        'gpus = ["h100"]\n' + UBUNTU + torch("2.8.0"),
    ),
    (
        *("driver", Level.FAULT, 'driver = "535.129"\n' + UBUNTU + torch("2.11.0")),
        'driver = "535.129"\n' + UBUNTU + torch("2.8.0"),
    ),
    (
        *("driver-gpu", Level.FAULT, 'driver = "590.10"\ngpus = ["v100"]\n' + UBUNTU + torch("2.6.0")),
        'driver = "580.65"\ngpus = ["v100"]\n' + UBUNTU + torch("2.6.0"),
    ),
    (
        *("base-ucx", Level.FAULT, 'base = "ubuntu:20.04"\n[mpi]\n[ucx]\n'),
        'base = "ubuntu:22.04"\n[mpi]\n[ucx]\n',
    ),
    (
        *("base-openmpi", Level.FAULT, 'base = "debian:12"\n[mpi]\nversion = "5.0.8"\n'),
        'base = "debian:12"\n[mpi]\nversion = "4.1.4"\n',
    ),
    (
        *(
            "base-rdma-core",
            Level.FAULT,
            'base = "debian:12"\n[rdma]\nuser-space = "rdma-core"\nversion = "50"\n',
        ),
        'base = "debian:12"\n[rdma]\nuser-space = "rdma-core"\nversion = "44"\n',
    ),
    (
        *("mpi-ucx", Level.FAULT, UBUNTU + '[mpi]\n[ucx]\nversion = "1.18.1"\nsource = "build"\n'),
        UBUNTU + '[mpi]\nversion = "5.0.8"\nsource = "build"\n[ucx]\nversion = "1.18.1"\nsource = "build"\n',
    ),
    (
        *("mpi-ucx", Level.FAULT),
        UBUNTU + '[mpi]\nversion = "5.0.8"\nsource = "build"\n[ucx]\nversion = "1.8.1"\nsource = "build"\n',
        UBUNTU + '[mpi]\nversion = "5.0.8"\nsource = "build"\n[ucx]\nversion = "1.18.1"\nsource = "build"\n',
    ),
    (
        # what rests on a row without a source is a warning
        *("mpi-ucx", Level.WARNING),
        UBUNTU + '[mpi]\nversion = "4.1.8"\nsource = "build"\n[ucx]\nversion = "1.8.1"\nsource = "build"\n',
        UBUNTU + '[mpi]\nversion = "4.1.8"\nsource = "build"\n[ucx]\nversion = "1.18.1"\nsource = "build"\n',
    ),
    (
        *(
            "mpi-ucx",
            Level.WARNING,
            'network = "roce"\n' + UBUNTU + '[mpi]\nversion = "5.0.8"\nsource = "build"\n',
        ),
        'network = "roce"\n' + UBUNTU + '[mpi]\nversion = "4.1.8"\nsource = "build"\n',
    ),
    (
        *("rdma", Level.WARNING, 'network = "infiniband"\n' + UBUNTU + torch("2.8.0")),
        'network = "infiniband"\n' + UBUNTU + torch("2.8.0") + '[rdma]\nuser-space = "rdma-core"\n',
    ),
    (
        *("rdma-network", Level.FAULT, 'network = "efa"\n' + UBUNTU + '[rdma]\nuser-space = "doca-ofed"\n'),
        'network = "roce"\n' + UBUNTU + '[rdma]\nuser-space = "doca-ofed"\n',
    ),
    (
        *("rdma-base", Level.WARNING, 'base = "debian:12"\n[rdma]\nuser-space = "mlnx-ofed"\n'),
        UBUNTU + '[rdma]\nuser-space = "mlnx-ofed"\n',
    ),
    (
        *(
            "one-rdma",
            Level.FAULT,
            UBUNTU + '[rdma]\nuser-space = "mlnx-ofed"\n[packages]\napt = ["libibverbs1=50.0-2build2"]\n',
        ),
        UBUNTU + '[rdma]\nuser-space = "rdma-core"\n[packages]\napt = ["libibverbs1"]\n',
    ),
    (
        *("nccl-gid", Level.WARNING, 'network = "roce"\n' + UBUNTU + torch("2.4.1")),
        'network = "roce"\n' + UBUNTU + torch("2.5.1"),
    ),
    (
        *("nccl-cuda", Level.FAULT, CUDA + '[nccl]\nversion = "2.8.4"\n'),
        CUDA + '[nccl]\nversion = "2.27.7"\n',
    ),
    (
        *("torch-nccl", Level.NOTE, CUDA + torch("2.8.0") + '[nccl]\nversion = "2.27.7"\n'),
        CUDA + torch("2.8.0"),
    ),
    ("base-old", Level.WARNING, 'base = "ubuntu:20.04"\n', 'base = "ubuntu:22.04"\n'),
    (
        *("cuda-base", Level.FAULT, UBUNTU + '[cuda]\nversion = "12.8"\n'),
        CUDA + '[cuda]\nversion = "12.8"\n',
    ),
    (
        *("cuda-base", Level.FAULT, CUDA + '[cuda]\nversion = "12.6"\n'),
        CUDA + '[cuda]\nversion = "12.8.1"\n',
    ),
    (
        *("cuda-image", Level.FAULT, 'base = "nvidia/cuda:12.4.1-base-ubuntu24.04"\n'),
        'base = "nvidia/cuda:12.4.1-base-ubuntu22.04"\n',
    ),
    (
        *("cuda-tag", Level.WARNING, 'base = "nvidia/cuda:12.8.9-base-ubuntu24.04"\n'),
        CUDA,
    ),
    (
        *("cuda-deleted", Level.FAULT, 'base = "nvidia/cuda:10.2-base-ubuntu18.04"\n'),
        'base = "nvidia/cuda:11.2.2-base-ubuntu18.04"\n',
    ),
    ("cuda-deleted", Level.FAULT, OLD, OLD.replace("9.0-devel", "11.2.2-devel")),
    (
        *("cuda-apt-key", Level.FAULT, OLD + '[cudnn]\nversion = "7.4.1.5"\n'),
        OLD,
    ),
    (
        *("base-python", Level.FAULT, 'base = "debian:12"\n[python]\nversion = "3.12"\n'),
        'base = "debian:12"\n[python]\nversion = "3.12"\nsource = "conda"\n',
    ),
    ("ringleader-python", Level.FAULT, 'base = "debian:11"\n', 'base = "debian:12"\n'),
    ("ringleader-torch", Level.FAULT, UBUNTU + torch("2.7.1"), UBUNTU + torch("2.8.0")),
    (
        *("ringleader-python", Level.FAULT, 'base = "ubuntu:22.04"\n'),
        'base = "ubuntu:22.04"\n[python]\nversion = "3.11"\n',
    ),
    ("pinned", Level.NOTE, UBUNTU, f'base = "ubuntu:24.04@sha256:{"a" * 64}"\n'),
    ("lock", Level.NOTE, UBUNTU, UBUNTU + '[packages]\nlock = "requirements.lock"\n'),
    ("port", Level.WARNING, UBUNTU + "[sshd]\nport = 22\n", UBUNTU + "[sshd]\nport = 2222\n"),
    (
        *("unverified", Level.NOTE, UBUNTU + '[rdma]\nuser-space = "mlnx-ofed"\n'),
        UBUNTU + f'[rdma]\nuser-space = "mlnx-ofed"\nsha256 = "{"ab" * 32}"\n',
    ),
]


@pytest.mark.parametrize(
    ("rule", "level", "broken", "sound"),
    CASES,
    ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)],
)
def test_a_rule_finds_what_it_is_for_and_nothing_next_to_it(
    rule: str, level: Level, broken: str, sound: str
) -> None:
    found = [one for one in findings(broken) if one.where == rule]
    assert [one.level for one in found][:1] == [level], [
        f"{one.where}: {one.what}" for one in findings(broken)
    ]
    assert all(one.hint for one in found if one.level in BAD), "a fault says what would work"
    assert not [one.what for one in findings(sound) if one.where == rule and one.level == level]


def test_every_rule_has_a_case() -> None:
    found = set()
    for name in bundled_recipes.names():
        selection = selection_of(recipe_parser.recipe(bundled_recipes.text(name), name))
        found |= {one.where for one in clashes(selection, load())}
    for _, _, broken, sound in CASES:
        for text in (broken, sound):
            selection = selection_of(recipe_parser.recipe(f'name = "x"\n{text}', "x.toml"))
            found |= {one.where for one in clashes(selection, load())}
    assert found <= {case[0] for case in CASES} | {"horovod-set", "base", "secret"}


@pytest.mark.parametrize(
    ("text", "rule", "works"),
    [
        ('gpus = ["p100"]\n' + UBUNTU + torch("2.8.0"), "gpu-wheel", "variant cu126"),
        ('gpus = ["h100", "b200"]\n' + UBUNTU + torch("2.6.0"), "gpu-wheel", "PyTorch 2.8.0, variant cu128"),
        (UBUNTU + torch("2.12.0") + tensorflow("2.21.0"), "two-cudas", "variant cu126"),
        (UBUNTU + torch("2.8.0") + tensorflow("2.19.1"), "two-cudas", "TensorFlow 2.20.0"),
        ('base = "ubuntu:26.04"\n' + torch("2.8.0"), "wheel-python", "PyTorch 2.9.1, variant cu128"),
        (
            OLD + torch("1.3.0", variant="cu92", torchvision="0.4.1"),
            *("image-cuda", "PyTorch 1.1.0, variant cu90, torchvision 0.3.0"),
        ),
        (UBUNTU + torch("2.8.7"), "torch", "nearest: 2.7.1, 2.8.0, 2.9.0"),
    ],
)
def test_the_nearest_set_that_works_is_told(text: str, rule: str, works: str) -> None:
    assert [one.hint for one in findings(text) if one.where == rule] == [works]


def test_there_is_no_wheel_of_pytorch_1_3_for_cuda_9_0() -> None:
    found = [one for one in findings(OLD + torch("1.3.0", variant="cu90")) if one.where == "torch-variant"]
    assert [one.what for one in found] == ["PyTorch 1.3.0 has no wheel for CUDA 9.0"]
    assert found[0].hint == "variants: cpu, cu92, cu100, cu101"


def test_what_rests_on_an_unverified_row_is_a_warning() -> None:
    known, unknown = Cited(row="a", says="b", source="c"), Cited(row="d", says="e", source="")
    assert fault("x", "y", known).level is Level.FAULT
    assert fault("x", "y", known, unknown).level is Level.WARNING


@pytest.mark.parametrize(
    ("archs", "ptx", "capability", "is_covered"),
    [
        (("8.0",), "", "8.6", True),
        (("8.6",), "", "8.0", False),
        (("9.0",), "", "10.0", False),
        (("9.0",), "9.0", "10.0", True),
        (("12.0",), "12.0", "10.0", False),
        (("10.0",), "", "10.3", True),
    ],
)
def test_compiled_code_runs_within_a_major_capability(
    archs: tuple[str, ...], ptx: str, capability: str, is_covered: bool
) -> None:
    assert covers(archs, ptx, capability) is is_covered


# --- all selections ----------------------------------------------------------------------------------

TABLES = load()
VERSIONS = [version for row in TABLES.torch for version, _ in row.versions]
SELECTIONS = some.builds(
    Selection,
    base=some.sampled_from([row.name for row in TABLES.bases] + ["nvidia/cuda:12.8.1-base-ubuntu24.04", "?"]),
    torch=some.sampled_from(["", "9.9.9", *VERSIONS]),
    torch_variant=some.sampled_from(["", "cpu", "cu118", "cu126", "cu128", "cu130"]),
    tensorflow=some.sampled_from(["", *(row.versions[-1] for row in TABLES.tensorflow)]),
    gpus=some.lists(some.sampled_from([row.name for row in TABLES.gpus]), max_size=2).map(tuple),
    driver=some.sampled_from(["", "470.82", "535.54", "590"]),
    network=some.sampled_from(["", "roce", "efa", "tcp"]),
    mpi=some.sampled_from(["", "openmpi", "mpich"]),
    rdma=some.sampled_from(["", *TABLES.user_spaces]),
    has_ringleader=some.booleans(),
)


@settings(max_examples=10, deadline=None)
@given(SELECTIONS)
def test_findings_are_ordered_complete_and_the_same_each_time(selection: Selection) -> None:
    found = check(selection, TABLES)
    levels = [list(Level).index(one.level) for one in found]
    assert levels == sorted(levels)
    assert check(selection, TABLES) == found
    assert {(one.where, one.what) for one in found} == {
        (one.where, one.what) for one in clashes(selection, TABLES)
    }
    for one in found:
        assert one.what and not one.what.endswith(".")
        assert one.level not in BAD or all(row.source for row in one.rows)


@settings(max_examples=25, deadline=None)
@given(SELECTIONS, some.sampled_from(["450", "525.60.13", "535", "580", "600"]))
def test_a_newer_driver_is_never_too_old(selection: Selection, driver: str) -> None:
    older = {one.what for one in clashes(replace(selection, driver=driver), TABLES) if one.where == "driver"}
    newest = clashes(replace(selection, driver="999"), TABLES)
    assert not [one for one in newest if one.where == "driver"]
    assert key(driver) < key("580") or not older


# --- the command -------------------------------------------------------------------------------------


def run(*words: str, text: str = "") -> Result:
    done = CliRunner().invoke(ringleader, ["image", "check", *words], input=text, standalone_mode=False)
    done.exit_code = done.exit_code or done.return_value or 0
    return done


def test_all_profiles_are_checked_and_none_is_at_fault() -> None:
    done = run()
    assert done.exit_code == 0, done.output
    for name in (*bundled_recipes.names(), *bundled_recipes.HISTORICAL):
        assert f"\n{name} " in done.output
    assert "cannot work" not in done.output


def test_strict_takes_what_cannot_be_built_today_for_a_fault() -> None:
    assert run(*bundled_recipes.HISTORICAL).exit_code == 0
    done = run("--strict", *bundled_recipes.HISTORICAL)
    assert done.exit_code == 2
    assert done.output.count("cannot be built today:") >= 3


def test_json_has_every_row_with_its_source() -> None:
    done = run("--json", "-", "--gpu", "b300", text=f'name = "x"\n{UBUNTU}{tensorflow("2.19.1")}')
    (found,) = json.loads(done.output)
    assert found["recipe"] == "x" and found["result"] == "fits"
    (told,) = [one for one in found["findings"] if one["rule"] == "gpu-cuda"]
    assert told["level"] == "warning"
    assert [row["source"] for row in told["rows"]].count("unverified") == 1


def test_hosts_may_be_given_on_the_command_line() -> None:
    text = f'name = "x"\n{UBUNTU}{torch("2.8.0", variant="cu126")}'
    assert run("-", text=text).exit_code == 0
    done = run("-", "--gpu", "b200", "--driver", "470", "--network", "roce", text=text)
    assert done.exit_code == 2
    for said in ("was not compiled for b200", "needs driver 525.60.13", "silently fall back to TCP", "→ "):
        assert said in done.output


def test_faults_of_all_recipes_are_told_at_once() -> None:
    done = run("nosuch", "alsonot", "--set", "torch.version=1")
    told = str(done.exception)
    assert "nosuch" in told and "alsonot" in told


def test_faults_of_one_cause_propose_the_same_cure() -> None:
    found = check(Selection(base="ubuntu:20.04", torch="2.8.0", has_ringleader=True), load())
    works = {one.where: one.hint for one in found if one.level is Level.FAULT}
    assert works == {"wheel-python": "base ubuntu:24.04", "ringleader-python": "base ubuntu:24.04"}


def test_where_gpus_are_named_no_wheel_is_proposed_whose_gpus_nobody_knows() -> None:
    found = check(Selection(base="ubuntu:24.04", torch="2.8.0", gpus=("p100", "b200")), load())
    assert {one.hint for one in found if one.level is Level.FAULT} == {NOTHING_NEAR}


def test_a_compiler_that_the_base_does_not_package() -> None:
    found = check(Selection(base="debian:12", gcc="9"), load())
    (fault,) = (one for one in found if one.where == "gcc")
    assert fault.level is Level.FAULT and fault.hint == "one of 11, 12"
    assert not [one for one in check(Selection(base="debian:12", gcc="11"), load()) if one.where == "gcc"]
