"""Signatures and claims about images: made and verified here, and by openssl, securesystemslib and cosign.

cosign takes part where it is installed. Its 2.5.0 has also attached what `image sign` prints to an image in a
registry (docker-registry 2.8.3); `cosign verify` and `verify-attestation` accepted it there, by hand.
"""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from tests.system_programs import program

from ringleader.cli.main import ringleader
from ringleader.errors import RefusedError, RequestError
from ringleader.images.attestation import (
    PROVENANCE,
    bases_of,
    envelope,
    parts_of,
    payload,
    private_key,
    provenance,
    statement,
)

DIGEST = "sha256:" + "ab" * 32
IMAGE = f"example.org/team/train@{DIGEST}"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a key pair and what a build wrote, which is the current one."""
    monkeypatch.chdir(tmp_path)
    key = ec.generate_private_key(ec.SECP256R1())
    form = PrivateFormat.PKCS8
    (tmp_path / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))
    locked = key.private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"word"))
    (tmp_path / "locked.pem").write_bytes(locked)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key.pub").write_bytes(public)
    made = statement(
        "example.org/team/train:1", "sha256:" + "cd" * 32, "https://slsa.dev/provenance/v1", {"a": "é"}
    )
    (tmp_path / "provenance.json").write_text(json.dumps(made))
    (tmp_path / "sbom.json").write_text('{"bomFormat": "CycloneDX"}')
    return tmp_path


def call(*words: str) -> str:
    done = CliRunner().invoke(ringleader, ["image", *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def sign(*words: str) -> str:
    return call("sign", IMAGE, "--key", "key.pem", "--provenance", "provenance.json", *words)


def test_what_is_signed_is_verified(place: Path) -> None:
    assert payload(f"example.org:5000/team/train:1@{DIGEST}").decode() == (
        '{"critical":{"identity":{"docker-reference":"example.org:5000/team/train"},"image":'
        f'{{"docker-manifest-digest":"{DIGEST}"}},"type":"cosign container image signature"}},'
        '"optional":null}'
    ), "as cosign writes it"
    for image in ("train:1", f"Train@{DIGEST}", "train@sha256:ab", f"a b@{DIGEST}"):
        with pytest.raises(RequestError, match="does not name an image by its digest"):
            parts_of(image)
    said = sign("--sbom", "sbom.json")
    assert said.splitlines() == [
        f"cosign attach signature --payload signed/payload.json --signature signed/payload.sig {IMAGE}",
        f"cosign attach attestation --attestation signed/provenance.dsse.json {IMAGE}",
        f"cosign attach attestation --attestation signed/sbom.dsse.json {IMAGE}",
    ]
    rows = [line.split() for line in call("verify", IMAGE, "--key", "key.pub").splitlines()]
    assert rows == [
        ["payload.json", "signed"],
        ["provenance.dsse.json", "https://slsa.dev/provenance/v1"],
        ["sbom.dsse.json", "https://cyclonedx.org/bom"],
    ]
    found = json.loads(base64.b64decode(json.loads((place / "signed/sbom.dsse.json").read_text())["payload"]))
    assert found["subject"] == [{"name": "example.org/team/train", "digest": {"sha256": "ab" * 32}}]
    assert found["predicate"] == {"bomFormat": "CycloneDX"}


@pytest.mark.process
def test_openssl_verifies_the_signature_as_it_verifies_cosigns(place: Path) -> None:
    sign()
    signature = base64.b64decode((place / "signed/payload.sig").read_text())
    (place / "der").write_bytes(signature)
    words = [program("openssl", "openssl"), "dgst", "-sha256", "-verify", "key.pub", "-signature", "der"]
    done = subprocess.run([*words, "signed/payload.json"], capture_output=True, text=True, timeout=30)
    assert done.stdout == "Verified OK\n", done.stderr


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("payload.sig", "M", "N", "not of this text by this key"),
        ("provenance.dsse.json", '"payload": "ey', '"payload": "ez', "is not an envelope"),
        ("provenance.dsse.json", '"sig": "M', '"sig": "N', "not of this text by this key"),
        ("provenance.dsse.json", "in-toto+json", "json", "not a statement with one signature"),
    ],
)
def test_what_was_changed_is_refused(place: Path, file: str, old: str, new: str, words: str) -> None:
    sign()
    path = place / "signed" / file
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(RefusedError, match=words) as caught:
        call("verify", IMAGE, "--key", "key.pub")
    assert "signed/" in caught.value.faults[0].where


def test_another_key_and_another_image_are_refused(place: Path) -> None:
    sign()
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    (place / "other.pub").write_bytes(other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(RefusedError, match="by this key"):
        call("verify", IMAGE, "--key", "other.pub")
    for image in (IMAGE.replace("train", "other"), IMAGE.replace("ab", "ef")):
        with pytest.raises(RefusedError, match="is about another image: example"):
            call("verify", image, "--key", "key.pub")
    with pytest.raises(RefusedError, match="cannot be read"):
        call("verify", IMAGE, "--key", "key.pub", "-d", "nowhere")


def test_keys_that_cannot_sign(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "cosign.key").write_text("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n")
    edwards = ed25519.Ed25519PrivateKey.generate()
    (place / "ed.pem").write_bytes(edwards.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (place / "text").write_text("no key")
    monkeypatch.setenv("COSIGN_PASSWORD", "of another key")
    assert call("sign", IMAGE, "--key", "key.pem", "-o", "my dir").startswith(
        "cosign attach signature --payload 'my dir/payload.json'"
    )
    monkeypatch.delenv("COSIGN_PASSWORD")
    for key, words in (
        ("cosign.key", "in cosign's own format"),
        ("ed.pem", "not an ECDSA key on P-256"),
        ("text", "not a private key"),
        ("locked.pem", "not a private key"),
        ("none", "cannot be read"),
    ):
        with pytest.raises(RequestError, match=words) as caught:
            call("sign", IMAGE, "--key", key)
        assert "openssl genpkey" in str(caught.value)
    monkeypatch.setenv("COSIGN_PASSWORD", "word")
    assert call("sign", IMAGE, "--key", "locked.pem", "-o", "out").startswith("cosign attach")
    assert not (place / "signed").exists(), "nothing is written where the key is wrong"


def test_files_that_no_build_wrote(place: Path) -> None:
    with pytest.raises(RequestError) as caught:
        call("sign", IMAGE, "--key", "key.pem", "--provenance", "key.pub", "--sbom", "none")
    assert [fault.where for fault in caught.value.faults] == ["--provenance", "--sbom"]
    other = statement("example.org/team/other:1", DIGEST, PROVENANCE, {})
    (place / "other.json").write_text(json.dumps(other))
    (place / "kind.json").write_text(json.dumps(other | {"predicateType": "https://slsa.dev/vsa/v1"}))
    for file, said in (
        ("other.json", "is about another image: example.org/team/other"),
        ("kind.json", "is not what `ringleader image build` wrote"),
    ):
        with pytest.raises(RequestError) as caught:
            call("sign", IMAGE, "--key", "key.pem", "--provenance", file, "--sbom", file)
        found = {fault.where: fault.what for fault in caught.value.faults}
        assert found == {"--provenance": said, "--sbom": "is not what `ringleader image build` wrote"}
    assert not (place / "signed").exists()


@pytest.mark.parametrize("subject", [{}, [{}], [{"digest": {"sha256": 1}}]])
def test_a_signed_envelope_about_no_image(place: Path, subject: object) -> None:
    sign()
    key = private_key((place / "key.pem").read_bytes(), "", "")
    document = statement("", DIGEST, PROVENANCE, {}) | {"subject": subject}
    (place / "signed/provenance.dsse.json").write_text(envelope(key, document))
    with pytest.raises(RefusedError, match=r"is not an envelope|is about another image"):
        call("verify", IMAGE, "--key", "key.pub")


def test_provenance_names_everything_that_the_image_was_made_of() -> None:
    text = "FROM a/b:1 AS build\nFROM --platform=x c@sha256:0 AS two\nFROM build\nFROM scratch\nFROM a/b:1\n"
    assert bases_of(text) == ("a/b:1", "c@sha256:0")
    found = provenance(
        recipe="my.toml",
        dockerfile="FROM ubuntu:24.04\n",
        context={"train.py": "ab" * 32},
        bases={"ubuntu:24.04": DIGEST, "lost": ""},
        builder={"buildah": "buildah version 1.28.2", "ringleader": "0.1.0"},
        argv=("buildah", "bud"),
        times=("2026-11-01T10:00:00Z", "2026-11-01T10:01:00Z"),
    )
    made_of = found["buildDefinition"]["resolvedDependencies"]
    assert [one.get("name") or one["uri"] for one in made_of] == [
        *("Dockerfile", "docker://ubuntu:24.04", "docker://lost", "train.py")
    ]
    assert made_of[1]["digest"] == {"sha256": "ab" * 32} and "digest" not in made_of[2]
    # What SLSA requires of a provenance (v1, "buildDefinition" and "runDetails").
    assert {"buildType", "externalParameters"} <= found["buildDefinition"].keys()
    assert found["runDetails"]["builder"]["id"] and ":" in found["buildDefinition"]["buildType"]


@pytest.mark.process
def test_the_key_of_a_repository_is_known_by_its_fingerprint(tmp_path: Path) -> None:
    """The shell's words of a build, with the real gpg: one more key in the file is one too many."""
    from ringleader.images.blocks.downloads import repository

    gpg = [program("gpg", "gnupg"), "--homedir", str(tmp_path), "--batch"]
    files, prints = [], []
    for name in ("one", "two"):
        make = [*gpg, "--passphrase", "", "--quick-generate-key", name, "ed25519", "sign"]
        subprocess.run(make, check=True, capture_output=True)
        files.append(subprocess.run([*gpg, "--export", name], check=True, capture_output=True).stdout)
        shown = subprocess.run(
            [*gpg, "--with-colons", "-k", name], check=True, capture_output=True, text=True
        )
        prints.append(next(row.split(":")[9] for row in shown.stdout.splitlines() if row.startswith("fpr")))
    subprocess.run(["gpgconf", "--homedir", str(tmp_path), "--kill", "all"], check=False)
    (_, added), _ = repository("x", "https://example.org/KEY", "deb {key}", fingerprint=prints[0])
    (check,) = [one for one in added.commands if one.startswith("test ")]
    for content, right in ((files[0], True), (files[1], False), (files[0] + files[1], False), (b"", False)):
        (tmp_path / "x.asc").write_bytes(content)
        words = check.replace("/usr/share/keyrings/x.asc", str(tmp_path / "x.asc"))
        done = subprocess.run(
            ["sh", "-c", words],
            capture_output=True,
            env={"GNUPGHOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        )
        assert (done.returncode == 0) is right, done.stderr
