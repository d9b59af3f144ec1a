"""What the self-test reads from files and from other tools' output, and the list of packages."""

import email
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ringleader.doctor import image_inspection, import_probe, sbom
from ringleader.doctor.image_inspection import read_manifest
from ringleader.doctor.sbom import Package, Subject, document, purl, text
from ringleader.images.recipe import Recipe, record

LDD = """\
/opt/a.so:
\tlinux-vdso.so.1 (0x1)
\tlibz.so.9 => not found
\tlibc.so.6 => /lib/libc.so.6 (0x2)
\tliba.so.1 => not found
\tlibz.so.9 => not found
/opt/b.so:
\tstatically linked
"""


def test_ldd() -> None:
    found = image_inspection.parsed_ldd(LDD, ("/opt/a.so", "/opt/b.so"))
    assert found == {"/opt/a.so": ("liba.so.1", "libz.so.9")}
    found = image_inspection.parsed_ldd("\tlibz.so.9 => not found\n", ("/opt/a.so",))
    assert found == {"/opt/a.so": ("libz.so.9",)}, "about one file it does not name it"
    none = image_inspection.missing_libraries(("/x",), environ={"PATH": "/nowhere"}, seconds=1.0)
    assert none == ({}, "there is no ldd here")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a small image."""
    for path, content in {
        "usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so": "",
        "usr/lib/x86_64-linux-gnu/libibverbs/libbnxt_re-rdmav34.so": "",
        "usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5": "",
        "usr/local/cuda/lib64/libnccl.so.2": "",
        "etc/ssh/ssh_host_rsa_key": "-----BEGIN OPENSSH PRIVATE KEY-----\n",
        "etc/ssh/ssh_host_rsa_key.pub": "ssh-rsa PRIVATE KEY-----",
        "etc/ssh/ssh_host_ecdsa_key": "",
        "etc/ssh/sshd_config": "Port 2222\n",
        "home/trainer/.ssh/deploy": "-----BEGIN RSA PRIVATE KEY-----\n",
        "home/trainer/.ssh/authorized_keys": "ssh-rsa AAAA\n",
        "etc/pip.conf": "[global]\nindex-url = https://me:secret@pip.example.org/simple\ntimeout = 60\n",
        "etc/apt/sources.list": (
            "# deb http://no.example.org/ x\ndeb [signed-by=/k] http://deb.debian.org/debian x main\n"
        ),
        "etc/apt/sources.list.d/x.sources": (
            "Types: deb\nURIs: https://mirror.example.org/debian http://deb.debian.org/debian\n"
        ),
        "etc/os-release": 'ID=debian\nVERSION_ID="12"\nNAME="Debian"\n',
        "var/lib/dpkg/status": (
            "Package: libc6\nStatus: install ok installed\nVersion: 2.36-9+deb12u1\nArchitecture: amd64\n"
            "Source: glibc (2.36-9)\n\n"
            "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n"
            "Package: libstdc++6\nStatus: install ok installed\nVersion: 1:12~x\nArchitecture: amd64\n"
        ),
        "usr/share/doc/libc6/copyright": (
            "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
            "License: LGPL-2.1\n words\nLicense: GPL-2\nLicense: LGPL-2.1\n"
        ),
        "usr/share/doc/libstdc++6/copyright": "This is free.\nLicense: yes\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    return tmp_path


def test_what_is_in_an_image(root: Path) -> None:
    assert image_inspection.providers(root) == ("bnxt_re", "mlx5")
    (root / "usr/lib/x86_64-linux-gnu/libnccl.so.2").symlink_to("libnccl.so.2.21.5")
    nccl = ("usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5", "usr/local/cuda/lib64/libnccl.so.2")
    assert image_inspection.system_nccl(root) == tuple(str(root / name) for name in nccl), "each once"
    assert image_inspection.apt_hosts(root) == ("deb.debian.org", "mirror.example.org")
    found = [key.path.removeprefix(f"{root}/") for key in image_inspection.keys(root)]
    assert found == ["etc/ssh/ssh_host_rsa_key", "home/trainer/.ssh/deploy"], "by what they are"
    (root / "mountinfo").write_text("1 0 8:1 / / rw - ext4 x rw\n2 1 0:5 / /root/.ssh ro - tmpfs x rw\n")
    assert image_inspection.mounts(root / "mountinfo") == ("/root/.ssh",)
    assert image_inspection.mounts(root / "none") == ()
    for code, version in ((22105, "2.21.5"), (2307, "2.3.7"), (2115, "2.1.15")):
        assert import_probe.nccl_version(code) == version
    (root / "etc/pip.conf").write_bytes(b"index-url = \xff\n")
    assert not [one for one in image_inspection.pip_sources({}, "", root) if "etc/pip.conf" in one]


def test_pip_s_places_without_credentials(root: Path) -> None:
    environ = {"PIP_EXTRA_INDEX_URL": "https://t:s@a.example.org/x https://b.example.org", "PIP_TIMEOUT": "3"}
    found = image_inspection.pip_sources(environ, "", root)
    ours = [one for one in found if sys.prefix not in one]
    assert ours == [
        f"{root}/etc/pip.conf: index-url = https://pip.example.org/simple",
        "PIP_EXTRA_INDEX_URL=https://a.example.org/x https://b.example.org",
    ]


def test_the_manifest_reads_back(tmp_path: Path) -> None:
    recipe = Recipe(name="d", base="debian:12", where="somewhere")
    path = tmp_path / "image.json"
    path.write_text(json.dumps(record(recipe)))
    found, wrong = read_manifest(path)
    assert (found, wrong) == (record(recipe), "")
    assert read_manifest(tmp_path / "none") == (None, "")
    path.write_text("[1]")
    assert read_manifest(path) == (None, "it is not a JSON object")
    path.write_text("{")
    assert read_manifest(path)[0] is None
    assert read_manifest(path)[1]


def test_packages(root: Path, tmp_path: Path) -> None:
    found = list(sbom.debian(root))
    assert [(one.name, one.version, one.source, one.licenses) for one in found] == [
        ("libc6", "2.36-9+deb12u1", "glibc", ("GPL-2", "LGPL-2.1")),
        ("libstdc++6", "1:12~x", "", ()),
    ]
    assert list(sbom.debian(tmp_path / "none")) == []

    class Found:
        def __init__(self, name: str | None, version: str) -> None:
            self.metadata = email.message_from_string(f"Name: {name}\n" if name else "")
            self.version = version

    every = [Found("Mpi4Py", "1"), Found("mpi4py", "2"), Found(None, ""), Found("a", "3")]
    assert [(one.name, one.version) for one in sbom.python(every)] == [("Mpi4Py", "1"), ("a", "3")]
    wheel = Package(sort="pypi", name="Ruamel.Yaml_x", version="1.0+cpu")
    assert purl(wheel) == "pkg:pypi/ruamel-yaml-x@1.0%2Bcpu"
    deb = Package(sort="deb", name="libstdc++6", version="1:12~x+1", architecture="amd64")
    expected = "pkg:deb/debian/libstdc%2B%2B6@1:12~x%2B1?arch=amd64&distro=debian-12"
    assert purl(deb, "debian-12") == expected


def test_python_s_licenses() -> None:
    for fields, expected in (
        ("License-Expression: MIT OR Apache-2.0\nLicense: x\n", ("MIT OR Apache-2.0",)),
        ("Classifier: License :: OSI Approved :: BSD License\nLicense: x\n", ("BSD License",)),
        ("Classifier: License :: OSI Approved\nLicense: BSD\n", ("BSD",)),
        ("License: " + "x" * 500 + "\n", ()),
        ("Name: a\n", ()),
    ):
        assert sbom.python_licenses(email.message_from_string(fields)) == expected


VERSIONS = some.text(alphabet="0123456789.+~:-ab ", min_size=1, max_size=12)
PACKAGES = some.builds(
    Package,
    sort=some.sampled_from(("deb", "pypi")),
    name=some.from_regex(r"\A[a-z][a-z0-9+.-]{0,8}\Z"),
    version=VERSIONS,
    licenses=some.lists(some.text(min_size=1, max_size=5), max_size=2).map(tuple),
)


@given(some.lists(PACKAGES, max_size=6), some.randoms(use_true_random=False))
def test_the_same_packages_give_the_same_text(found: list[Package], chance) -> None:
    subject = Subject(name="d", version="sha256:1", distribution="debian-12")
    once = {purl(one, "debian-12"): one for one in found}
    mixed = list(once.values())
    chance.shuffle(mixed)
    assert text(subject, once.values()) == text(subject, mixed)
    made = document(subject, mixed)
    references = [one["bom-ref"] for one in made["components"]]
    assert len(references) == len(set(references)) == len(once)
    assert made["dependencies"] == [{"ref": "image", "dependsOn": references}]


def test_the_schema_of_cyclonedx(root: Path) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    judge = JsonStrictValidator(SchemaVersion.V1_5)
    assert judge.validate_str(text(Subject(name="d", version="1"), sbom.debian(root))) is None
    assert (
        judge.validate_str('{"bomFormat": "CycloneDX", "specVersion": "1.5", "components": [{}]}') is not None
    )
