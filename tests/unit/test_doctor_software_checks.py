"""Software checks of a host, by records of packages that no machine needs to have."""

from dataclasses import replace

from tests.unit.fabric.machines import host

from ringleader.doctor.software_checks import SOFTWARE_CHECKS
from ringleader.fabric.checks.check import judge_all
from ringleader.fabric.facts import Gpu, MpiFacts, Software

OPENMPI = MpiFacts(
    family="Open MPI",
    version="5.0.11",
    mpirun="/env/bin/mpirun",
    library="/env/lib/libmpi.so.40",
    embedded=True,
)
BASE = replace(
    host(mpi=OPENMPI, nccl=""),
    software=Software(
        **{"python": "3.12.3", "executable": "/env/bin/python", "ringleader": "1.0", "known_hosts": 3},
        packages={"mpi4py": "4.1.1", "numpy": "2.2.0"},
        mpis=(OPENMPI,),
        ssh="/usr/bin/ssh",
        sshd="/usr/sbin/sshd",
    ),
)


def with_software(**changes):
    return replace(BASE, software=replace(BASE.software, **changes))


def with_packages(**packages):
    named = {name.replace("__", "-"): version for name, version in packages.items()}
    return with_software(packages=dict(BASE.software.packages) | named)


def told(facts):
    """Return id and subject → verdict, and all that is said of them."""
    results = list(judge_all(SOFTWARE_CHECKS, facts))
    return {f"{one.id} {one.subject}".strip(): str(one.verdict) for one in results}, results


def test_a_host_with_all_that_jobs_need_passes():
    verdicts, _ = told(BASE)
    assert {name: word for name, word in verdicts.items() if word not in ("pass", "skip")} == {}
    assert verdicts["mpi.found"] == verdicts["python.mpi4py"] == verdicts["ssh.client"] == "pass"
    assert verdicts["package.torch"] == "skip"


OLD = replace(OPENMPI, version="3.1.6", library="", embedded=False)
OTHER = replace(OPENMPI, family="MPICH", version="4.2.0", mpirun="/usr/bin/mpirun", embedded=False)


def test_what_is_missing_or_clashes_is_told():
    for facts, name, verdict, words in (
        (with_software(mpis=()), "mpi.found", "fail", "no MPI"),
        (with_software(mpis=(OLD,)), "mpi.version", "warn", "Open MPI 3.1.6"),
        (with_software(mpis=(OPENMPI, OTHER)), "mpi.others", "pass", "also MPICH 4.2.0"),
        (with_software(ssh=""), "ssh.client", "warn", "this host only"),
        (with_software(sshd=""), "ssh.server", "skip", "no sshd"),
        (with_software(known_hosts=None), "ssh.known-hosts", "skip", "--accept-new-host-keys"),
        (with_software(python="3.10.4"), "python.version", "fail", "3.10.4"),
        (with_software(packages={"numpy": "2.0"}), "python.mpi4py", "fail", "not installed"),
        (with_packages(numpy="1.22.0"), "python.numpy", "fail", "1.22.0"),
        (with_packages(torch="2.2.1+cu121"), "python.numpy", "fail", "PyTorch 2.2.1+cu121"),
        (with_packages(tensorflow="2.17.1"), "python.numpy", "fail", "TensorFlow 2.17.1"),
        (with_packages(mxnet="1.9.1"), "python.numpy", "fail", "MXNet"),
        (with_packages(jinja2="3.1"), "python.extras report", "warn", "matplotlib missing"),
        (with_packages(horovod="0.28.1"), "python.horovod", "pass", "--as-horovod"),
        (with_packages(torch="2.1.0"), "frameworks.installed torch", "warn", "2.1.0"),
        (with_packages(tensorflow="2.16.1", keras="2.15"), "tensorflow.keras keras", "warn", "Keras 2.15"),
        (
            with_packages(tensorflow="2.19.0", tf_keras="2.18.0"),
            "tensorflow.keras tf-keras",
            "warn",
            "2.18.0",
        ),
        (with_packages(keras="3.9"), "keras.backend", "warn", "no backend"),
        (with_packages(keras="3.9", jax="0.6"), "keras.backend", "pass", "jax"),
        (with_packages(jax="0.6.0", jaxlib="0.7.0"), "jax.jaxlib", "warn", "newer"),
        (
            with_packages(jax="0.6.0", jaxlib="0.6.0", jax__cuda12__plugin="0.5.0"),
            "jax.jaxlib",
            "warn",
            "-plugin 0.5",
        ),
        (with_packages(jax="0.6.0", jaxlib="0.6.0"), "jax.jaxlib", "pass", "JAX 0.6.0"),
    ):
        verdicts, results = told(facts)
        assert verdicts[name] == verdict
        found = next(one for one in results if f"{one.id} {one.subject}".strip() == name)
        assert words in found.seen
        assert found.remedy or verdict in ("pass", "skip")


def test_the_nccl_that_pytorch_loads():
    facts = with_packages(torch="2.8.0+cu128", nvidia__nccl__cu12="2.26.2")
    verdicts, _ = told(facts)
    assert verdicts["torch.nccl"] == "skip" and verdicts["nccl.one-wheel"] == "pass"
    wanted = replace(facts, software=replace(facts.software, torch_nccl="2.27.3"))
    verdicts, results = told(wanted)
    assert verdicts["torch.nccl nvidia-nccl-cu12"] == "warn"
    assert any("nvidia-nccl-cu12==2.27.3" in one.remedy for one in results)
    two = dict(wanted.software.packages) | {"nvidia-nccl-cu13": "2.27.3"}
    verdicts, _ = told(replace(wanted, software=replace(wanted.software, packages=two)))
    assert verdicts["nccl.one-wheel"] == "warn"


def test_a_wheel_for_cpus_beside_gpus():
    gpu = Gpu(index=0, pci_address="0000:18:00.0", vendor=0x10DE)
    facts = replace(with_packages(torch="2.8.0+cpu"), gpus=(gpu,))
    assert told(facts)[0]["torch.gpu-build"] == "warn"
    assert told(replace(facts, gpus=()))[0]["torch.gpu-build"] == "pass"


def test_ids_are_unique_and_every_check_is_described():
    assert len({one.id for one in SOFTWARE_CHECKS}) == len(SOFTWARE_CHECKS) >= 16
    for one in SOFTWARE_CHECKS:
        assert ". " in one.what and one.reads and one.judge and one.group
        assert one.remedy or not (one.warns or one.fails), one.id


def test_what_was_not_read_is_not_called_missing():
    unread = replace(BASE, software=Software(python="", executable="", ringleader=""))
    verdicts, _ = told(unread)
    assert "fail" not in verdicts.values() and verdicts["software"] == "skip"
