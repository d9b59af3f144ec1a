"""A Debian or Ubuntu root file system from this machine's own package sources, kept for the next run."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

SETTINGS = re.compile(r"Acquire::(Check-|Retries|http::|https::|ForceIPv)")
"""What of apt's configuration says how packages are reached from here."""
WITH = "ca-certificates"


def suite() -> tuple[str, str]:
    """Return this machine's release as ``debian:12`` and ``bookworm``."""
    lines = Path("/etc/os-release").read_text().splitlines()
    facts = {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}
    return f"{facts.get('ID')}:{facts.get('VERSION_ID')}", facts.get("VERSION_CODENAME", "")


def sources(name: str) -> str:
    """Return those of the machine's package sources that are of the release ``name``, in apt's deb822 form.

    Sources of others (a vendor's, say) would need keys that only this machine has.
    """
    found: dict[str, None] = {}
    argv = ["apt-get", "indextargets", "Identifier: Packages"]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
    for target in said.split("\n\n"):
        facts = dict(line.split(": ", 1) for line in target.splitlines() if re.match(r"[\w-]+: ", line))
        if re.fullmatch(rf"{name}(-updates|-security)?", facts.get("Release", "")):
            lines = ["Types: deb", f"URIs: {facts['Repo-URI']}", f"Suites: {facts['Release']}"]
            lines.append(f"Components: {facts['Component']}")
            lines += [f"Signed-By: {facts['Signed-By']}"] if "Signed-By" in facts else []
            found["\n".join(lines)] = None
    return "".join(f"{stanza}\n\n" for stanza in found)


def settings() -> list[str]:
    """Return what apt is told here about mirrors, proxies and clocks, one line of configuration each."""
    argv = ["apt-config", "dump", "--no-empty", "--format", '%f "%v";%n', "Acquire"]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
    return [line for line in said.splitlines() if SETTINGS.match(line)]


def made(cache: Path) -> Path:
    """Return the root file system's archive; it is made where it does not exist yet."""
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
