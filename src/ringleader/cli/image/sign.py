"""``ringleader image sign`` and ``verify``: signatures as cosign has them, by a key in a file."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringleader.cli.options.option_checks import Faults, read_input
from ringleader.cli.output import table
from ringleader.cli.typed_command import Command
from ringleader.errors import RefusedError, RequestError, refuse
from ringleader.images import attestation
from ringleader.option_fields import argument, flag, option

PAYLOAD, SIGNATURE = "payload.json", "payload.sig"
KINDS = {"provenance": attestation.PROVENANCE, "sbom": attestation.SBOM}
"""Option → type of its predicate; its envelope is ``OPTION.dsse.json``."""


@dataclass(frozen=True, kw_only=True)
class SignOptions:
    """The options of ``sign``."""

    image: str = argument("IMAGE@sha256:…")
    key: str = option(
        "Private key (PEM); its password is read from COSIGN_PASSWORD.", default="", metavar="FILE"
    )
    output: str = option("Directory for the signatures.", "-o", "--output", default="signed", metavar="DIR")
    provenance: str | None = option("Also sign this output of `image build --provenance`.", metavar="FILE")
    sbom: str | None = option("Also sign this output of `image build --sbom`.", metavar="FILE")
    dry_run: bool = flag("Print the payload, and stop.")


@Command.of("sign", SignOptions, no_args_is_help=True)
def sign_command(options: SignOptions) -> None:
    """Sign a pushed image, given by its digest, with a local key.

    \b
      buildah push --digestfile digest example.org/team/train:1
      ringleader image sign example.org/team/train@$(cat digest) --key key.pem --provenance provenance.json

    Writes a signature in cosign's format and in-toto attestations, and prints the cosign commands that attach
    them to the image. Nothing is sent anywhere.
    """
    name, digest = attestation.parts_of(options.image)
    payload = attestation.payload(options.image)
    if options.dry_run:
        print(payload.decode())
        return
    faults = Faults()
    key = attestation.private_key(_key(options.key), os.environ.get("COSIGN_PASSWORD", ""), "--key")
    texts = {PAYLOAD: payload.decode(), SIGNATURE: attestation.signed(key, payload) + "\n"}
    for part, kind in KINDS.items():
        file = getattr(options, part)
        text = None if file is None else faults.text_of(f"--{part}", file, read_input)
        if text is not None:
            document = attestation.statement(name, digest, kind, _predicate(part, text, name, faults))
            texts[f"{part}.dsse.json"] = attestation.envelope(key, document)
    refuse(faults.found)
    directory = Path(options.output)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            (directory / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RefusedError(f"cannot be written: {error.strerror}", where=str(error.filename)) from None
    files = ("--payload", f"{directory}/{PAYLOAD}", "--signature", f"{directory}/{SIGNATURE}")
    words: list[tuple[str, ...]] = [("signature", *files)]
    words += [("attestation", "--attestation", f"{directory}/{file}") for file in list(texts)[2:]]
    for part_words in words:
        print(shlex.join(("cosign", "attach", *part_words, options.image)))


def _predicate(part: str, text: str, name: str, faults: Faults) -> Any:
    """Read a file that ``image build`` wrote: a statement, whose predicate counts, or a list of packages.

    ``name``: the image's repository, which a statement has to be about.
    """
    try:
        document = json.loads(text)
        if part == "sbom":
            is_right, found = document["bomFormat"] == "CycloneDX", document
        else:
            is_right, found = document["predicateType"] == KINDS[part], document["predicate"]
            about = [attestation.repository_of(one["name"]) for one in document["subject"]]
            if is_right and name not in about:
                hint = f"ringleader image build --tag {name} --provenance FILE"
                faults.add(f"--{part}", f"is about another image: {', '.join(about)[:200]}", hint)
    except (ValueError, LookupError, TypeError, AttributeError):
        is_right, found = False, None
    if not is_right:
        faults.add(f"--{part}", "is not what `ringleader image build` wrote")
    return found


def _key(path: str) -> bytes:
    if importlib.util.find_spec("cryptography") is None:
        raise RequestError("needs cryptography", where="--key", hint="pip install 'ringleader[kubernetes]'")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        what = f"cannot be read: {error.strerror}" if path else "is needed"
        raise RequestError(what, where="--key", hint=attestation.MAKE_KEY) from None


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """The options of ``verify``."""

    image: str = argument("IMAGE@sha256:…")
    key: str = option("Public key (PEM).", default="", metavar="FILE")
    directory: str = option(
        "Output directory of `image sign`.", "-d", "--directory", default="signed", metavar="DIR"
    )


@Command.of("verify", VerifyOptions, no_args_is_help=True)
def verify_command(options: VerifyOptions) -> None:
    """Verify the output of `image sign` with a public key.

    \b
      ringleader image verify example.org/team/train@sha256:… --key cosign.pub
    """
    attestation.parts_of(options.image)
    key, directory = attestation.public_key(_key(options.key), "--key"), Path(options.directory)
    rows = []
    try:
        signature = (directory / SIGNATURE).read_text("utf-8")
        payload = (directory / PAYLOAD).read_bytes()
        attestation.check_payload(key, options.image, payload, signature, str(directory / PAYLOAD))
        rows.append((PAYLOAD, "signed"))
        for file in sorted(directory.glob("*.dsse.json")):
            kind = attestation.opened_envelope(key, options.image, file.read_text("utf-8"), str(file))
            rows.append((file.name, kind))
    except (OSError, UnicodeDecodeError) as error:
        where = str(getattr(error, "filename", None) or directory)
        raise RefusedError(f"cannot be read: {getattr(error, 'strerror', error)}", where=where) from None
    print(table(rows, form="plain"), file=sys.stdout)
