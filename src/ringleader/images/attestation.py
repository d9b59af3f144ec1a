"""What is claimed of an image, and signatures of it: SLSA provenance, cosign's payload, DSSE envelopes.

Formats: in-toto Statement v1, SLSA Provenance v1, DSSE v1.0.2 (its ``protocol.md``), and the "simple signing"
payload of cosign (``specs/SIGNATURE_SPEC.md``). Keys are ECDSA on P-256 with SHA-256, cosign's own kind, from
a file; nothing is asked of a certificate authority or written to a transparency log. `build` makes images.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.images.recipe import REFERENCE

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

BUILD_TYPE = "urn:ringleader:image-build:v1"
PROVENANCE, SBOM = "https://slsa.dev/provenance/v1", "https://cyclonedx.org/bom"
STATEMENT = "https://in-toto.io/Statement/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
MAKE_KEY = "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out KEY.pem"


def parts_of(reference: str) -> tuple[str, str]:
    """Return repository and digest of ``NAME@sha256:…``. Raises RequestError for another reference."""
    name, _, digest = reference.partition("@")
    if not digest or REFERENCE.pattern.fullmatch(reference) is None:
        hint = "name what was pushed: example.org/team/train@sha256:… (buildah push --digestfile FILE)"
        raise RequestError(
            f"{reference[:200]!r} does not name an image by its digest", where="IMAGE", hint=hint
        )
    return repository_of(name), digest


def repository_of(name: str) -> str:
    """Return an image's name without its tag."""
    head, slash, tail = name.rpartition("/")
    return f"{head}{slash}{tail.partition(':')[0]}"


# --- what is claimed --------------------------------------------------------------------------------------


def bases_of(dockerfile: str) -> tuple[str, ...]:
    """Return the images that a Dockerfile begins with, each once."""
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", dockerfile, re.MULTILINE)) | {"scratch"}
    found = re.findall(r"^FROM (?:--\S+ )*(\S+)", dockerfile, re.MULTILINE)
    return tuple(one for one in dict.fromkeys(found) if one not in stages)


def provenance(
    *,
    recipe: str,
    dockerfile: str,
    context: Mapping[str, str],
    bases: Mapping[str, str],
    builder: Mapping[str, str],
    argv: tuple[str, ...],
    times: tuple[str, str],
) -> dict[str, Any]:
    """Return the predicate: what an image was made of, and by what.

    ``context``: path → SHA-256 of each file that is copied. ``bases``: reference → digest, empty where the
    builder did not know it. ``builder``: programs → versions. ``times``: RFC 3339, of begin and end.
    """
    made_of = [{"uri": f"docker://{one}", **_digest(digest)} for one, digest in bases.items()]
    made_of += [{"name": path, "digest": {"sha256": sha256}} for path, sha256 in context.items()]
    text = hashlib.sha256(dockerfile.encode()).hexdigest()
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"recipe": recipe},
            "internalParameters": {"command": list(argv)},
            "resolvedDependencies": [{"name": "Dockerfile", "digest": {"sha256": text}}, *made_of],
        },
        "runDetails": {
            "builder": {"id": BUILD_TYPE, "version": dict(builder)},
            "metadata": {"startedOn": times[0], "finishedOn": times[1]},
        },
    }


def _digest(digest: str) -> dict[str, Any]:
    return {"digest": {"sha256": digest.removeprefix("sha256:")}} if digest else {}


def statement(name: str, digest: str, predicate_type: str, predicate: Any) -> dict[str, Any]:
    """Return an in-toto statement about an image."""
    subject = [{"name": name, **_digest(digest)}]
    return {"_type": STATEMENT, "subject": subject, "predicateType": predicate_type, "predicate": predicate}


def payload(reference: str) -> bytes:
    """Return what cosign signs of an image. Raises RequestError."""
    name, digest = parts_of(reference)
    kind = "cosign container image signature"
    image = {"docker-manifest-digest": digest}
    critical = {"identity": {"docker-reference": name}, "image": image, "type": kind}
    return json.dumps({"critical": critical, "optional": None}, separators=(",", ":")).encode()


# --- signatures -------------------------------------------------------------------------------------------


def private_key(text: bytes, password: str, where: str) -> EllipticCurvePrivateKey:
    """Return a key from its file. Raises RequestError, also for another kind of key than cosign's."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if b"ENCRYPTED SIGSTORE PRIVATE KEY" in text or b"ENCRYPTED COSIGN PRIVATE KEY" in text:
        what, hint = "is in cosign's own format, which is read by cosign alone", f"use a PEM key: {MAKE_KEY}"
        raise RequestError(what, where=where, hint=hint)
    hint = f"COSIGN_PASSWORD has the password of an encrypted key; to make one: {MAKE_KEY}"
    is_locked = b"ENCRYPTED" in text  # PEM says so, in its first line or its second
    key: EllipticCurvePrivateKey = _read(
        lambda: load_pem_private_key(text, password.encode() or None if is_locked else None),
        *("private", where, hint),
    )
    return key


def public_key(text: bytes, where: str) -> EllipticCurvePublicKey:
    """Return a public key from its file. Raises RequestError."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    hint = "cosign.pub, or openssl pkey -in KEY.pem -pubout"
    key: EllipticCurvePublicKey = _read(lambda: load_pem_public_key(text), "public", where, hint)
    return key


def _read(load: Callable[[], Any], kind: str, where: str, hint: str) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        key = load()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise RequestError(f"is not a {kind} key: {error}", where=where, hint=hint) from None
    if getattr(getattr(key, "curve", None), "name", "") != "secp256r1":
        raise RequestError("is not an ECDSA key on P-256, as cosign's are", where=where, hint=MAKE_KEY)
    return key


def signed(key: EllipticCurvePrivateKey, data: bytes) -> str:
    """Return a signature of data in base64, as cosign has it."""
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    return base64.b64encode(key.sign(data, ECDSA(SHA256()))).decode()


def check_signature(key: EllipticCurvePublicKey, signature: str, data: bytes, where: str) -> None:
    """Raise RefusedError where the signature is not of this data by this key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        key.verify(base64.b64decode(signature.strip(), validate=True), data, ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        raise RefusedError("the signature is not of this text by this key", where=where) from None


def envelope(key: EllipticCurvePrivateKey, document: Mapping[str, Any]) -> str:
    """Return a statement with its signature: a DSSE envelope, which `cosign attach attestation` takes."""
    body = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    signature = {"keyid": "", "sig": signed(key, _encoded(body))}
    text = base64.b64encode(body).decode()
    return json.dumps({"payloadType": PAYLOAD_TYPE, "payload": text, "signatures": [signature]}) + "\n"


def _encoded(body: bytes) -> bytes:
    """Return what of a statement is signed: DSSE's pre-authentication encoding."""
    return f"DSSEv1 {len(PAYLOAD_TYPE)} {PAYLOAD_TYPE} {len(body)} ".encode() + body


def check_payload(
    key: EllipticCurvePublicKey, reference: str, text: bytes, signature: str, where: str
) -> None:
    """Raise RefusedError where a payload is not of an image, or not signed by the key."""
    check_signature(key, signature, text, where)
    try:
        critical = json.loads(text)["critical"]
        found = f"{critical['identity']['docker-reference']}@{critical['image']['docker-manifest-digest']}"
    except (ValueError, LookupError, TypeError):
        raise RefusedError("is not a payload of cosign's", where=where) from None
    if found != "@".join(parts_of(reference)):
        raise RefusedError(f"is about another image: {found}", where=where)


def opened_envelope(key: EllipticCurvePublicKey, reference: str, text: str, where: str) -> str:
    """Return the type of what an envelope claims of an image. Raises RefusedError where it is not signed by
    the key, or about another image."""
    _, digest = parts_of(reference)
    try:
        found = json.loads(text)
        body = base64.b64decode(found["payload"], validate=True)
        signatures = [str(one["sig"]) for one in found["signatures"]]
        document = json.loads(body)
        subjects = [one["digest"]["sha256"] for one in document["subject"]]
        kind, about = str(document["predicateType"]), str(subjects[0])[:64]
    except (ValueError, LookupError, TypeError):
        raise RefusedError("is not an envelope with a statement in it", where=where) from None
    if found.get("payloadType") != PAYLOAD_TYPE or len(signatures) != 1:
        raise RefusedError("is not a statement with one signature", where=where)
    check_signature(key, signatures[0], _encoded(body), where)
    if digest.removeprefix("sha256:") not in subjects:
        raise RefusedError(Fault(where=where, what=f"is about another image: sha256:{about}"))
    return kind
