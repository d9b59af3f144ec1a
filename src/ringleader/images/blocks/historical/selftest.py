"""The self-test of a historical image: a POSIX shell script, as Ringleader needs a newer Python. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.images.instructions import Run, words, write
from ringleader.images.stage_steps import Setting

PLACE = "/usr/local/bin/image-selftest"
DEADLINE = 60
"""Seconds for each of sshd's answer and the two ranks."""
MODULES = (
    ("tensorflow", ("tensorflow", "tensorflow-source")),
    ("torch", ("torch",)),
    ("mxnet", ("mxnet",)),
)
"""What is imported, and the blocks that have its version."""
HOROVOD = ("tensorflow", "torch", "mxnet")
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
SSHD = (
    'port=$({python} -c "{free_port}")',
    '"$(command -v sshd)" -D -e -p "$port" -o PidFile=none 2> "$work/sshd" &',
    "sshd=$!",
    "tries=0",
    "until {ask} > /dev/null 2>&1 || test $tries -ge {deadline}; do",
    "    tries=$((tries + 1))",
    "    sleep 1",
    "done",
    'check "sshd on port $port" {ask}',
    'kill "$sshd" 2> /dev/null',
    'test $failed -eq 0 || cat "$work/sshd"',
)
ASK_LOGIN = 'ssh -o BatchMode=yes -o ConnectTimeout=5 -p "$port" root@127.0.0.1 echo logged in'
ASK_KEY = 'sh -c "ssh-keyscan -T 5 -p $port 127.0.0.1 | grep ."'


def step(setting: Setting) -> Run:
    """Return what puts the script into the image."""
    return Run(
        commands=(write(PLACE, lines(setting)), words("chmod", "0755", PLACE)),
        why=f"What shows that the image works: {PLACE}.",
    )


def lines(setting: Setting) -> tuple[str, ...]:
    """Return the script: only what the image has is tried."""
    ask = ASK_LOGIN if "sshd" in setting.blocks and setting.blocks["sshd"].keys == "in-image" else ASK_KEY
    filled = {
        "{python}": words(setting.python),
        "{free_port}": FREE_PORT,
        "{deadline}": str(DEADLINE),
        "{ask}": ask,
    }
    found = []
    for line in (*HEAD, *_body(setting), 'rm -rf "$work"', 'exit "$failed"'):
        for name, value in filled.items():
            line = line.replace(name, value)
        found.append(line)
    return tuple(found)


def _body(setting: Setting) -> Iterator[str]:
    blocks = setting.blocks
    if setting.cuda:
        yield from STUBS
    yield "check Python {python} --version"
    if "gcc" in blocks:
        yield f"check gcc gcc-{blocks['gcc'].version} -dumpversion"
    for module, owners in MODULES:
        yield from (f"module {module} {blocks[owner].version}" for owner in owners if owner in blocks)
    if "torch" in blocks and blocks["torch"].torchvision:
        yield f"module torchvision {blocks['torch'].torchvision}"
    if "horovod" in blocks:
        yield f"module horovod {blocks['horovod'].version}"
        for owner in HOROVOD:
            if owner in blocks:
                yield f'check horovod.{owner} {{python}} -c "import horovod.{owner}"'
    if "sshd" in blocks:
        yield from SSHD
    if "mpi" in blocks:
        yield "check mpirun timeout {deadline} mpirun -np 2 --oversubscribe hostname"
