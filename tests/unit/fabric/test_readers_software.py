"""Libraries, MPIs, NCCLs and packages, by their files alone."""

import ast
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fabric_hosts.tree import Tree

from ringleader.fabric import readers
from ringleader.fabric.readers import libraries, mpi_installations, software
from ringleader.fabric.readers.sysfs_files import Files

LIB = "usr/lib/x86_64-linux-gnu"
SITE = "usr/lib/python3/dist-packages"


@pytest.fixture
def tree():
    return Tree(hostname="host")


def read(tree, tmp_path, reader, environ=None, programs=()):
    tree.program(*programs)
    tree.write(tmp_path)
    for one in programs:
        os.chmod(tmp_path / one, 0o755)
    return reader(Files(tmp_path), environ or {})


def loader_cache(*entries: tuple[int, str, str], older: bytes = b"") -> bytes:
    """Return /etc/ld.so.cache with entries of flags, name and path."""
    header = libraries.CACHE_HEADER + len(entries) * libraries.CACHE_ENTRY.size
    strings, rows = b"", []
    for flags, name, path in entries:
        at = header + len(strings)
        strings += f"{name}\0{path}\0".encode()
        rows.append(libraries.CACHE_ENTRY.pack(flags, at, at + len(name) + 1, 0, 0))
    counts = struct.pack("<II", len(entries), len(strings))
    return (
        older
        + (libraries.CACHE_MAGIC + counts).ljust(libraries.CACHE_HEADER, b"\0")
        + b"".join(rows)
        + strings
    )


def test_the_cache_of_this_architecture():
    data = loader_cache(
        (0x0003, "libibverbs.so.1", "/lib/i386-linux-gnu/libibverbs.so.1"),
        (0x0303, "libibverbs.so.1", "/lib/x86_64-linux-gnu/libibverbs.so.1"),
        (0x0303, "libibverbs.so.1", "/opt/second/libibverbs.so.1"),
        older=b"ld.so-1.7.0" + b"\0" * 53,
    )
    assert libraries.cached(data, "x86_64") == {"libibverbs.so.1": "/lib/x86_64-linux-gnu/libibverbs.so.1"}
    assert libraries.cached(data, "mips")["libibverbs.so.1"].startswith("/lib/i386")
    for length in range(0, len(data), 7):
        libraries.cached(data[:length], "x86_64")
    assert libraries.cached(b"", "x86_64") == {}


def test_ld_library_path_comes_first_then_the_cache_then_the_default(tree, tmp_path):
    tree.library("libibverbs.so.1", "14.39.0")
    tree.library("libibverbs.so.1", "14.50.0", place="opt/ofed/lib")
    tree.library("librdmacm.so.1", "3.39.0", place="opt/cached")
    tree.library("libucp.so.0", "0.0")
    tree.file("etc/ld.so.cache", loader_cache((0x0303, "librdmacm.so.1", "/opt/cached/librdmacm.so.1")))
    environ = {"LD_LIBRARY_PATH": ":relative:/opt/none:/opt/ofed/lib/"}
    found = {one.name: one for one in read(tree, tmp_path, libraries.read, environ)}
    assert [(found[name].path, found[name].version, found[name].source) for name in (
        "libibverbs.so.1", "librdmacm.so.1", "libucp.so.0", "libcuda.so.1"
    )] == [
        ("/opt/ofed/lib/libibverbs.so.1", "1.14.50.0", "LD_LIBRARY_PATH"),
        ("/opt/cached/librdmacm.so.1", "1.3.39.0", "system"),
        (f"/{LIB}/libucp.so.0", "", "system"),
        ("", "", ""),
    ]  # fmt: skip


def test_versions_that_the_file_name_does_not_tell(tree, tmp_path):
    tree.library("libucp.so.0", "0.0")
    tree.library("libfabric.so.1", "20.0", place="opt/amazon/efa/lib64")
    tree.file("opt/amazon/efa/lib64/pkgconfig/libfabric.pc", "Name: libfabric\nVersion: 1.22.0amzn1.0")
    tree.file(
        "var/lib/dpkg/status",
        "Package: a\nVersion: 1\n\nPackage: libucx0\nStatus: install ok\nVersion: 1:1.13.1-1\n\n",
    )
    environ = {"LD_LIBRARY_PATH": "/opt/amazon/efa/lib64"}
    found = {one.name: one.version for one in read(tree, tmp_path, libraries.read, environ)}
    assert (found["libucp.so.0"], found["libfabric.so.1"]) == ("1.13.1", "1.22.0amzn1.0")


def test_providers_that_fit(tree, tmp_path):
    tree.library("libibverbs.so.1", "14.50.0")
    tree.file(f"{LIB}/libibverbs.so.1.14.50.0", b"\x7fELF\2 lib%s -rdmav34.so\0")
    for name, file in (("mlx5", "libmlx5-rdmav34.so"), ("efa", "libefa-rdmav25.so"), ("irdma", "")):
        tree.file(f"etc/libibverbs.d/{name}.driver", f"driver {name}")
        if file:
            tree.file(f"{LIB}/libibverbs/{file}", b"")
    tree.file(f"{LIB}/libibverbs/libsiw-rdmav34.so", b"")  # not configured
    tree.write(tmp_path)
    files = Files(tmp_path)
    assert libraries.verbs_providers(files, libraries.read(files, {})) == ("mlx5",)
    assert libraries.verbs_providers(files, ()) == ()


def test_what_is_preloaded_then_the_wheel_then_the_system(tree, tmp_path):
    tree.file(f"{SITE}/nvidia/nccl/lib/libnccl.so.2", b"\x7fELF")
    tree.file(f"{SITE}/nvidia_nccl_cu12-2.21.5.dist-info/METADATA", "")
    tree.library("libnccl.so.2", "18.3")
    tree.library("libnccl.so.2", "26.2", place="usr/local/cuda/lib64")
    tree.file("opt/mine/libnccl.so.2.30.7", b"\x7fELF")
    environ = {"LD_PRELOAD": "libfoo.so /opt/mine/libnccl.so.2.30.7"}
    found = read(tree, tmp_path, software.nccl_libraries, environ)
    assert [(one.version, one.source) for one in found] == [
        ("2.30.7", "LD_PRELOAD"),
        ("2.21.5", "wheel"),
        ("2.18.3", "system"),
        ("2.26.2", "system"),
    ]


def test_open_mpi_and_mpich_side_by_side_as_debian_has_them(tree, tmp_path):
    tree.file(f"{LIB}/libmpi.so.40", b"\x7fELF\0v4.1.4\0Open MPI\0")
    tree.file(f"{LIB}/openmpi/lib/openmpi3/mca_pml_ucx.so", b"")
    tree.file(f"{LIB}/libmpich.so.12", b"\x7fELF\0libucp.so.0\0")
    for name in ("mpirun", "mpiexec"):
        tree.link(f"usr/bin/{name}", f"etc/alternatives/{name}")
        tree.link(f"etc/alternatives/{name}", "usr/bin/orterun")
    tree.write(tmp_path)
    (tmp_path / "usr/bin/mpiexec.hydra").write_bytes(b"\x7fELF 127.0.0.1 HYDRA\x004.0.2\x00")
    (tmp_path / "usr/bin/orterun").write_bytes(b"\x7fELF")
    for name in ("mpiexec.hydra", "orterun"):
        os.chmod(tmp_path / "usr/bin" / name, 0o755)
    first, second = mpi_installations.read(Files(tmp_path), {"PATH": "/usr/bin:/bin"})
    assert (first.family, first.version, first.mpirun) == ("Open MPI", "4.1.4", "/usr/bin/mpirun")
    assert first.built_with == {"ucx": True, "ofi": False, "cuda": False}
    assert (second.family, second.version) == ("MPICH", "4.0.2")
    assert second.library == f"/{LIB}/libmpich.so.12"
    assert second.built_with == {"ucx": True, "ofi": False, "cuda": False}
    assert mpi_installations.read(Files(tmp_path / "nothing"), {"PATH": "/usr/bin"}) == ()


def test_intel_by_the_text_of_its_launcher(tree, tmp_path):
    root = "opt/intel/oneapi/mpi/2021.13"
    tree.file(f"{root}/lib/libmpi.so.12", b"\x7fELF")
    programs = (f"{root}/bin/mpirun", f"{root}/bin/mpiexec.hydra")
    read(tree, tmp_path, lambda *_: None, programs=programs)
    text = b"\x7fELF Intel(R) MPI Library, Version %s\x002021.13.1\x00"
    (tmp_path / programs[1]).write_bytes(text)
    (found,) = mpi_installations.read(Files(tmp_path), {"PATH": "", "I_MPI_ROOT": f"/{root}"})
    assert (found.family, found.version) == ("Intel MPI", "2021.13.1")
    assert found.mpirun == f"/{root}/bin/mpirun" and found.built_with["ofi"] is True


def test_by_the_names_of_their_records(tree, tmp_path):
    for record in (
        *("torch-2.6.0+cu124.dist-info", "Horovod-0.28.1.dist-info", "nvidia_nccl_cu12-2.21.5.dist-info"),
        *("jax_cuda12_plugin-0.5.0.dist-info", "numpy-1.24.2-py3.11.egg-info", "requests-2.32.dist-info"),
        "junk.dist-info",
    ):
        tree.file(f"{SITE}/{record}/METADATA", "")
    found = read(tree, tmp_path, software.read, {"PATH": "/usr/bin"}, ("usr/bin/ssh", "usr/sbin/sshd"))
    nvidia = {"jax-cuda12-plugin": "0.5.0", "nvidia-nccl-cu12": "2.21.5"}
    assert found.packages == {"horovod": "0.28.1", "numpy": "1.24.2", "torch": "2.6.0+cu124", **nvidia}
    assert (found.ssh, found.sshd, found.python) == ("/usr/bin/ssh", "/usr/sbin/sshd", "")


@pytest.mark.process
def test_reading_imports_no_package_and_starts_no_program():
    script = (
        "import subprocess, os, sys\n"
        "def forbidden(*arguments, **options): raise SystemExit('a program was started')\n"
        "subprocess.Popen = os.fork = os.system = os.posix_spawn = forbidden\n"
        "from ringleader.fabric.readers import read_host\n"
        "found = read_host()\n"
        "known = {'torch', 'numpy', 'mpi4py', 'tensorflow', 'jax', 'click'} & set(sys.modules)\n"
        "print(sorted(known), found.software.python != '', found.hostname != '')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.split("\n")[0] == "[] True True", done.stderr


def test_readers_need_only_the_standard_library():
    """Their text may be sent to a host on which nothing of ours is installed."""
    allowed = {*sys.stdlib_module_names, "ringleader"}
    ours = ("ringleader.fabric.facts", "ringleader.fabric.readers", "ringleader.agents")
    for path in Path(readers.__file__).parent.glob("*.py"):
        text = path.read_text()
        assert "__file__" not in text, path.name
        for node in ast.walk(ast.parse(text)):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.partition(".")[0] in allowed, (path.name, name)
                assert not name.startswith("ringleader") or name.startswith(ours), (path.name, name)
