"""A Debian or Ubuntu root file system from this machine's own package sources, kept for the next run."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

APT = Path("/etc/apt")
SETTINGS = re.compile(r"Acquire::(Check-|Retries|http::|https::|ForceIPv)")
"""What of apt's configuration says how packages are reached from here."""
WITH = "ca-certificates"


def suite() -> tuple[str, str]:
    """Return this machine's release as ``debian:12`` and ``bookworm``."""
    lines = Path("/etc/os-release").read_text().splitlines()
    facts = {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}
    return f"{facts.get('ID')}:{facts.get('VERSION_ID')}", facts.get("VERSION_CODENAME", "")


def sources(name: str, directory: Path = APT) -> str:
    """Return those of the machine's package sources that are of the release ``name``, in apt's deb822 form.

    Sources of others (a vendor's, say) would need keys that only this machine has.
    """
    return "".join(f"{stanza}\n\n" for stanza in (*_stanzas(name, directory), *_lines(name, directory)))


def _of_release(words: list[str], name: str) -> list[str]:
    return [word for word in words if re.fullmatch(rf"{name}(-updates|-security)?", word)]


def _stanzas(name: str, directory: Path) -> Iterator[str]:
    for path in sorted(directory.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            lines = [line for line in stanza.splitlines() if line and not line.startswith("#")]
            found = re.search(r"(?m)^Suites:(.*)$", "\n".join(lines))
            suites = _of_release(found[1].split(), name) if found else []
            if suites and not re.search(r"(?mi)^(Types: deb-src$|Enabled: no)", "\n".join(lines)):
                yield "\n".join(re.sub(r"^Suites:.*", f"Suites: {' '.join(suites)}", line) for line in lines)


def _lines(name: str, directory: Path) -> Iterator[str]:
    pattern = re.compile(
        r"deb\s+(?:\[(?P<options>[^]]*)\]\s*)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<parts>[^#]+)"
    )
    for path in [directory / "sources.list", *sorted(directory.glob("sources.list.d/*.list"))]:
        for line in path.read_text().splitlines() if path.is_file() else ():
            found = pattern.match(line.strip())
            if found and _of_release([found["suite"]], name):
                words = [word.partition("=") for word in (found["options"] or "").split()]
                signed = [f"Signed-By: {value}" for key, _, value in words if key.lower() == "signed-by"]
                stanza = ["Types: deb", f"URIs: {found['uri']}", f"Suites: {found['suite']}"]
                yield "\n".join([*stanza, f"Components: {found['parts'].strip()}", *signed])


def settings() -> list[str]:
    """Return what apt is told here about mirrors, proxies and clocks, one line of configuration each."""
    argv = ["apt-config", "dump", "--no-empty", "--format", '%f "%v";%n', "Acquire"]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
    return [line for line in said.splitlines() if SETTINGS.match(line)]


def made(cache: Path) -> Path:
    """Return the root file system's archive; it is made where it is not there yet."""
    _, name = suite()
    text, options = sources(name), settings()
    key = hashlib.sha256("\n".join([text, *options, WITH]).encode()).hexdigest()[:8]
    target = cache / f"rootfs-{name}-{os.uname().machine}-{key}.tar"
    if not target.exists():
        partial = cache / f"partial-{os.getpid()}.tar"
        listed = cache / f"partial-{os.getpid()}.sources"
        listed.write_text(text)
        try:
            make = _mmdebstrap if shutil.which("mmdebstrap") else _debootstrap
            make(name, listed, options, partial)
            partial.rename(target)
        finally:
            partial.unlink(missing_ok=True)
            listed.unlink(missing_ok=True)
    return target


def _mmdebstrap(name: str, listed: Path, options: list[str], target: Path) -> None:
    words = [f"--aptopt={option}" for option in options]
    words += ["--mode=root", "--variant=minbase", f"--include={WITH}", name, str(target)]
    # Without any source of this release, mmdebstrap takes the distribution's own servers.
    _call("mmdebstrap", *words, *([listed] if listed.read_text() else []))


def _debootstrap(name: str, listed: Path, options: list[str], target: Path) -> None:
    tree = target.with_suffix(".tree")
    uri = re.search(r"(?m)^URIs:\s*(\S+)", listed.read_text())
    try:
        _call("debootstrap", "--variant=minbase", f"--include={WITH}", name, tree, *([uri[1]] if uri else []))
        (tree / "etc/apt/sources.list").unlink(missing_ok=True)
        shutil.copy(listed, tree / "etc/apt/sources.list.d/machine.sources")
        (tree / "etc/apt/apt.conf.d/99machine").write_text("".join(f"{option}\n" for option in options))
        _call(
            "tar", "--create", "--numeric-owner", "--xattrs", f"--file={target}", f"--directory={tree}", "."
        )
    finally:
        shutil.rmtree(tree, ignore_errors=True)


def _call(*words: str | Path) -> None:
    done = subprocess.run(
        [*("nice", "-n", "5"), *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, f"{words[0]}: exit code {done.returncode}\n{done.stdout[-3000:]}"
