"""The self-test of a historical image: a POSIX shell script, as Ringleader needs a newer Python. Pure.

It asks what each block says (``Block.shell_checks``), so only what the image has is tried.
"""

from __future__ import annotations

from ringleader.images.instructions import Run, shell, write
from ringleader.images.stage_steps import ImageContext

PLACE = "/usr/local/bin/image-selftest"
DEADLINE = 60
"""Seconds for each of sshd's answer and the two ranks."""
BEFORE_FRAMEWORKS = ("python", "gcc")
FRAMEWORKS = ("tensorflow", "tensorflow-source", "torch", "mxnet")
AFTER_FRAMEWORKS = ("torch", "horovod", "sshd", "mpi")
"""Blocks in the order in which they are asked."""
HEAD = (
    "#!/bin/sh",
    "# Imports what this image is made of, says its versions; starts its sshd and two ranks where it can.",
    "# Exits with 0 if all of it works, with 1 otherwise.",
    "set -u",
    "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin",
    "work=$(mktemp -d)",
    "failed=0",
    "check() {",
    "    what=$1",
    "    shift",
    '    if "$@" > "$work/said" 2>&1; then',
    '        echo "ok      $what: $(tail -n 1 "$work/said")"',
    "    else",
    '        echo "FAILED  $what"',
    '        cat "$work/said"',
    "        failed=1",
    "    fi",
    "}",
    "# module MODULE VERSION: it loads, and is what the recipe says; 1.3.0+cu92 is 1.3.0.",
    "module() {",
    '    check "$1 $2" {python} -c "import $1 as m; v = m.__version__; print(v); '
    'assert v.partition(\\"+\\")[0] == \\"$2\\""',
    "}",
)
STUBS = (
    "# Without a driver CUDA has a stub of libcuda, in some images: enough to import, not to compute.",
    "stub=/usr/local/cuda/lib64/stubs/libcuda.so",
    'if ! ldconfig -p | grep -q "libcuda[.]so[.]1" && test -e "$stub"; then',
    '    ln -s "$stub" "$work/libcuda.so.1"',
    '    export LD_LIBRARY_PATH="$work${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"',
    "fi",
)
FREE_PORT = "import socket as s; o = s.socket(); o.bind((str(), 0)); print(o.getsockname()[1])"


def step(image: ImageContext) -> Run:
    """Return what puts the script into the image."""
    return Run(
        commands=(write(PLACE, lines(image)), shell("chmod", "0755", PLACE)),
        why=f"What shows that the image works: {PLACE}.",
    )


def lines(image: ImageContext) -> tuple[str, ...]:
    """Return the script."""
    blocks = image.blocks
    body = [
        *(STUBS if image.cuda else ()),
        *(line for one in BEFORE_FRAMEWORKS if one in blocks for line in blocks[one].shell_checks(image)),
        *(f"module {blocks[one].framework} {blocks[one].version}" for one in FRAMEWORKS if one in blocks),
        *(line for one in AFTER_FRAMEWORKS if one in blocks for line in blocks[one].shell_checks(image)),
    ]
    filled = {"{python}": shell(image.python), "{free_port}": FREE_PORT, "{deadline}": str(DEADLINE)}
    found = []
    for line in (*HEAD, *body, 'rm -rf "$work"', 'exit "$failed"'):
        for name, value in filled.items():
            line = line.replace(name, value)
        found.append(line)
    return tuple(found)
