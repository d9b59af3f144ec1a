"""The cases of the campaign of bad input: every command × surroundings, options × values, files × contents.

Commands and options are taken from click itself. A command that ``SUBJECTS`` does not know is an exception of
the campaign: whoever adds a command says here what is called.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import click

from ringleader.cli.main import ringleader
from ringleader.cli.options.kubernetes_options import is_for_clusters

OK, REQUEST, REFUSED, PIPE = 0, 2, 3, 141
ANY_GOOD_CODE = frozenset((OK, REQUEST, REFUSED))


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call of the command line."""

    command: str
    """``lab up``."""
    argv: tuple[str, ...]
    surroundings: str = "plain"
    what: str = ""
    """What is bad, in a few words."""
    codes: frozenset[int] = ANY_GOOD_CODE
    """Exit codes that are right."""
    mentions: tuple[str, ...] = ()
    """One of these must be in the message where the exit code is 2."""
    contents: tuple[str, bytes] | None = None
    """(name, bytes) of a file in the working directory that is written first."""
    is_service: bool = False
    """It runs until SIGTERM, which it gets after some seconds."""

    @property
    def name(self) -> str:
        return f"{self.command} · {self.what or self.surroundings}"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """How a command is called by somebody who means well."""

    good: tuple[tuple[str, ...], ...]
    """Calls (without the command's own words) that work, or that fail for lack of a cluster or lab only."""
    values: tuple[str, ...] = ()
    """Words before an option whose value is tried: nothing starts if the value turns out to be good."""
    after: tuple[str, ...] = ()
    """Words behind it."""
    is_service: bool = False


_KUBE = ("--kubeconfig", "kubeconfig")
_MADE = ("--image", "example.org/team/train:1", "-n", "2")
_TRAIN = ("python", "train.py")
_PAIR = ("-b", "8", "-e", "8", "--seconds", "1", "--replace", "--name", "trial")
_TWO = ("-n", "2", "--oversubscribe")
_ONE_SIZE = ("-b", "8", "-e", "8", "--iters", "1", "-w", "0", "--replace", "--name", "trial")
_SCALE = ("--grid", "1x1", "--repeats", "1", "--no-uncoupled", "--no-page", "--replace", "--name", "trial")

_DIGEST = f"example.org/team/train@sha256:{'5' * 64}"

SUBJECTS: dict[str, Subject] = {
    "run": Subject(
        good=(("-n", "1", *_TRAIN), ("--dry-run", "-n", "1", *_TRAIN)), values=("--dry-run",), after=_TRAIN
    ),
    "scale": Subject(good=((*_SCALE, *_TRAIN),), values=("--dry-run", "--no-page"), after=_TRAIN),
    "bench p2p": Subject(good=(("--dry-run",), _PAIR), values=("--dry-run",)),
    "bench allreduce": Subject(
        good=(
            (*_TWO, "--dry-run"),
            (*_TWO, *_ONE_SIZE),
            ("--from-file", "nccl-tests.txt", "--name", "trial"),
        ),
        values=("--dry-run", *_TWO),
    ),
    **{
        f"bench {operation}": Subject(good=((*_TWO, "--dry-run"),), values=("--dry-run", *_TWO))
        for operation in ("allgather", "reducescatter", "broadcast", "alltoall", "sendrecv")
    },
    "bench train": Subject(good=(("--dry-run", "-n", "1"),), values=("--dry-run",)),
    "report": Subject(
        good=(
            ("kept",),
            ("kept", "--format", "json", "-o", "out.json", "--replace"),
            ("collective", "pairs", "training"),
            ("collective", "--against", "collective", "--fail-below", "0.9"),
        ),
        after=("kept",),
    ),
    "predict": Subject(
        good=(
            ("--model", "resnet-50", "--rate", "219", "--batch", "64"),
            ("kept", "--gradients", "1e8", "--batch", "64"),
            ("job-profile.toml", "--json"),
        ),
        values=("--model", "resnet-50", "--rate", "219", "--batch", "64", "--ranks", "1,8"),
    ),
    "lab up": Subject(good=(("--dry-run",),), values=("--dry-run",)),
    "lab down": Subject(good=((), ("--dry-run",)), values=("--dry-run",)),
    "lab status": Subject(good=((), ("--json",))),
    "lab shell": Subject(good=(("h1",),), after=("h1",)),
    "lab exec": Subject(good=(("h1", "--", "true"),), after=("h1", "--", "true")),
    "lab cut": Subject(good=(("h1",),), after=("h1",)),
    "lab slow": Subject(
        good=(("h1", "--into", "1gbit"), ("h1", "--off")), values=("--dry-run",), after=("h1",)
    ),
    "lab heal": Subject(good=(("h1",),), after=("h1",)),
    "lab kill": Subject(good=(("h1",),), after=("h1",)),
    "completion": Subject(good=(("bash",),)),
    "analyze": Subject(good=(("trace.json",), ("trace.json", "--json")), after=("trace.json",)),
    "k8s submit": Subject(
        good=(("job.yaml",), ("--dry-run", "job.yaml")), values=("--dry-run", *_MADE), after=("--", *_TRAIN)
    ),
    "k8s status": Subject(good=((), ("job", "--json"))),
    "k8s logs": Subject(good=(("job",),), after=("job",)),
    "k8s explain": Subject(good=(("job",),), after=("job",)),
    "k8s delete": Subject(good=(("--yes", "job"), ("job",)), after=("job",)),
    "slurm status": Subject(good=((), ("7", "--json"))),
    "slurm logs": Subject(good=(("7",),), after=("7",)),
    "slurm cancel": Subject(good=(("7",),), values=("--dry-run",), after=("7",)),
    "render mpijob": Subject(good=(("job.yaml",), (*_MADE, "--", *_TRAIN)), values=_MADE, after=_TRAIN),
    "render pods": Subject(good=((*_MADE, "--", *_TRAIN),), values=_MADE, after=_TRAIN),
    "render trainjob": Subject(good=((*_MADE, "--", *_TRAIN),), values=_MADE, after=_TRAIN),
    "render compose": Subject(
        good=(("--image", "a:1", "-n", "2"), ("--image", "a:1", "-n", "2", "-o", "application")),
        values=("--image", "a:1", "-n", "2"),
    ),
    "render env": Subject(good=((), ("--format", "json"))),
    "render topology": Subject(good=((), ("--format", "svg", "-o", "machine.svg"))),
    "image list": Subject(good=((),)),
    "image render": Subject(
        good=(("recipe.toml",), ("recipe.toml", "-o", "context")), after=("recipe.toml",)
    ),
    "image check": Subject(good=(("recipe.toml",),), after=("recipe.toml",)),
    "image build": Subject(
        good=(("--dry-run", "recipe.toml"),), values=("--dry-run",), after=("recipe.toml",)
    ),
    "image solve": Subject(good=(("torch=2.8", "--json"),), after=("torch=2.8",)),
    "image lock": Subject(
        good=(("--dry-run", "recipe.toml"), ("--timeout", "5", "-o", "out.lock", "recipe.toml")),
        values=("--dry-run",),
        after=("recipe.toml",),
    ),
    "image sign": Subject(
        good=(("--dry-run", _DIGEST),), values=("--dry-run", _DIGEST), after=("--key", "recipe.toml", _DIGEST)
    ),
    "image verify": Subject(
        good=(("--key", "recipe.toml", _DIGEST),), after=("--key", "recipe.toml", _DIGEST)
    ),
    "doctor": Subject(
        good=((), ("--facts",), ("--sbom", "sbom.json")),
    ),
    "config": Subject(good=((), ("--json",))),
    "operator crd": Subject(good=((), ("--json",))),
    "operator manifests": Subject(good=((),)),
    "operator run": Subject(
        good=(("--port", "0", "--no-leader-election"),), values=("--port", "0"), is_service=True
    ),
}

HARMLESS = (
    "closed-stdin", "missing-tmpdir", "file-tmpdir", "binary-tmpdir", "no-home", "missing-home", "file-home",
    "no-locale", "c-locale", "bad-term", "bad-columns", "binary-variable", "dumb-encoding",
)  # fmt: skip
"""Surroundings in which a command does what it does elsewhere."""
HARMFUL = (
    "full-disk", "full-tmp", "read-only-disk", "read-only-tmp", "read-only-shm", "few-files", "no-file-size",
    "no-processes", "stranger", "deleted-directory", "no-path", "directory-kubeconfig", "silent-server",
    "garbage-server", "all-closed", "closed-stderr", "full-stderr",
)  # fmt: skip
"""Surroundings in which a command may refuse."""
STREAMS = ("closed-stdout", "full-stdout", "broken-stdout")

_NUMBERS = {"N", "PORT", "SECONDS", "RANKS", "PART", "I"}
_INPUTS = {"hostfile", "env_file", "kubeconfig", "ssh_config", "ssh_identity"}
_TEXTS = ("", "a b;$(x)\n", "\udcff\udcfe", "x" * 5000)
_PLACES = (
    "missing/one",
    "directory",
    "pipe",
    "/dev/zero",
    "dangling",
    "\udcff\udcfe",
    "binary",
    "",
    "x" * 5000,
)
_NEGATIVE_IS_GOOD = {("operator run", "port"), ("operator run", "monitoring_port"), ("k8s logs", "tail")}

_DEEP = b"[" * 20000
_MANY_ALIASES = b"a: &a [x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(9)
)
"""Ten lines that stand for 9**10 values."""
_IN_JSON = (
    b'{"schema": 1, "points": ' + b"9" * 400 + b"}", b'{"schema": 1e400}',
    b'{"schema": 1, "name": "\\ud800"}',
    b'\xef\xbb\xbf{"schema": 99}', b'\x1b[0m{"schema": 99}',
)  # fmt: skip
"""A number of 400 digits, one beyond every float, half a character; what editors and terminals put first."""

BROKEN: dict[str, tuple[bytes, ...]] = {
    "job.yaml": (
        b"", b"\0\1\2", b"\xff\xfe\xfd", b"a: [", b"a: b: c", _DEEP, b"- 1\n- 2\n", b"null\n",
        b"kind: MPIJob\n",
        b"apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: 7\nspec: []\n", b"a: &a [*a]\n",
        _MANY_ALIASES,
        b"apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: a}\nspec: {slotsPerWorker: -9}\n",
        b"!!python/object/apply:os.system [true]\n", b"{" + b'"a":' * 3000, b"x: 1\nx: 2\n", b"\t- a\n",
    ),
    "recipe.toml": (
        b"", b"\0", b"\xff\xfe", b"name = ", b"name = 'a'\n[torch]\nversion = 99999999999999999999999\n",
        b"[torch\n", b"name = 1979-05-27\n", b"name='a'\nname='b'\n", b"a = " + _DEEP,
        b"[" + b".".join([b"a"] * 3000) + b"]\n",
    ),
    "kubeconfig": (
        b"", b"\0", b"\xff\xfe", b"a: [", _DEEP, b"[]", b"current-context: x\ncontexts: 7\n",
        b"apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: b}}]\n",
    ),
    "kept/run.json": (
        b"", b"\0", b"\xff", b"{", b"[]", b"null", b'{"schema": 1}', _DEEP, b"1" * 5000, *_IN_JSON,
    ),
    **{
        f"{run}/run.json": (
            b"", b"\0", b"{", b'{"schema": 99, "kind": "collective"}', b'{"schema": 1, "kind": "nonsense"}',
            b'{"schema": 1, "kind": "collective", "series": 7, "ranks": -1}', _DEEP, *_IN_JSON,
        )
        for run in ("collective", "pairs", "training")
    },
    "nccl-tests.txt": (b"", b"\0", b"\xff\xfe", b"hello\n", b"[]", b"{", _DEEP, b"1024 " * 12 + b"\n",
        b"\xef\xbb\xbf# nThread 1\n", b"\x1b[?2004h", b"[1,0]<stdout>: 1 2 3\n", *_IN_JSON),
    "trace.json": (
        b"", b"\0", b"\xff", b"{", b"[]", b"null", b'{"traceEvents": 7}',
        b'{"traceEvents": [7, {"ph": "X"}]}', _DEEP, b"1" * 5000, *_IN_JSON,
    ),
    "curve.txt": (b"", b"\0", b"\xff\xfe", b"1 x\n", b"1 1\n", b"1 -1\n2 0\n", b"1 nan\n2 inf\n", _DEEP),
    "hosts.txt": (
        b"", b"\0", b"\xff\xfe", b"h1 slots=-1\n",
        b"h1 slots=9" + b"9" * 5000, b"h1:2:3 =\n", b"-oProxyCommand=x\n", b"h1 slots =\n", b"h1 = 4\n",
    ),
    "variables": (b"", b"\0", b"\xff\xfe", b"A", b"=x\n", b"A B=c\n", b"A='\n", b"1=2\n"),
    "facts.json": (
        b"", b"\0", b"\xff", b"{", b"[]", b"null", b'{"hostname": 7}', b'{"hostname": "a"}', _DEEP,
        b"1" * 5000, *_IN_JSON,
    ),
    "job-profile.toml": (
        b"", b"\0", b"\xff\xfe", b"a = ", b"batch = 'many'\n", b"batch = -1\nstep_seconds = 0\n",
        b"a = " + _DEEP, b"batch = nan\nstep_seconds = 1\ngradient_bytes = 9" + b"9" * 400 + b"\n",
        b"batch = 1\nstep_seconds = 1\ngradient_bytes = 1\nlayers = 7\npoints = [[]]\nparts = 3\n",
    ),
    "ringleader.toml": (
        b"\0", b"\xff\xfe", b"[run]\nnp = ", b"[run]\nnp = " + b"[" * 3000, b"[run]\nnp = " + b"1" * 5000,
        b"[run]\nworkdir = 'a'\nx = ['A=\\u0000']\noutput = \"a\\u0000\"\n", b"[nonsense]\n",
    ),
    "profile.toml": (
        b"\0", b"\xff\xfe", b"a = ", b"nics = 'many'\n", b"[nic]\ncount = -1\n", b"a = " + _DEEP,
    ),
}  # fmt: skip
"""Contents that are no good, or empty, by file."""

_READERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "job.yaml": (("k8s", "submit", "--dry-run", "job.yaml"), ("render", "mpijob", "job.yaml")),
    "recipe.toml": (
        ("image", "check", "recipe.toml"), ("image", "render", "recipe.toml"),
        ("image", "build", "--dry-run", "recipe.toml"), ("image", "lock", "--dry-run", "recipe.toml"),
    ),
    "kubeconfig": (("k8s", "status", *_KUBE), ("run", "--on", "pods", "--dry-run", *_MADE, *_KUBE, *_TRAIN)),
    "kept/run.json": (
        ("report", "kept"), ("report", "kept", "kept"), ("predict", "kept", "--gradients", "8"),
    ),
    "collective/run.json": (
        ("report", "collective"), ("report", "kept", "--against", "collective", "--fail-below", "0.9"),
        ("scale", "--resume", "collective"),
    ),
    "pairs/run.json": (("report", "kept", "pairs"),),
    "training/run.json": (("report", "training", "--format", "html"),),
    "nccl-tests.txt": (("bench", "allreduce", "--from-file", "nccl-tests.txt"),),
    "trace.json": (("analyze", "trace.json"),),
    "curve.txt": (("predict", "job-profile.toml", "--curve", "curve.txt"),),
    "hosts.txt": (("run", "--dry-run", "--hostfile", "hosts.txt", *_TRAIN),),
    "variables": (("run", "--dry-run", "--env-file", "variables", *_TRAIN),),
    "facts.json": (
        ("doctor", "--facts-from", "facts.json"), ("render", "env", "--facts-from", "facts.json"),
        ("render", "topology", "--facts-from", "facts.json"),
    ),
    "job-profile.toml": (("predict", "job-profile.toml"),),
    "ringleader.toml": (("run", "--dry-run", *_TRAIN), ("config",)),
    "profile.toml": (("doctor", "--expect", "profile.toml"),),
}  # fmt: skip
_MAY_BE_EMPTY = {"kubeconfig", "variables"}


def leaves(
    command: click.Command = ringleader, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Return every command that is no group, with its words."""
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        if child is not None:
            yield from leaves(child, (*words, name))


def unknown_commands() -> list[str]:
    """Return the commands that no case calls."""
    return [words for words, _ in leaves() if words not in SUBJECTS]


def all_cases() -> list[Case]:
    """Return every case, in one order."""
    found: list[Case] = []
    for words, command in leaves():
        if words in SUBJECTS:
            found += _of_surroundings(words, SUBJECTS[words])
            found += _of_values(words, command, SUBJECTS[words])
    return [*found, *_of_contents(), *_of_words()]


def sample(cases: list[Case], count: int, seed: int) -> list[Case]:
    """Return this many cases by chance, of every command at least one where there are enough."""
    dice = random.Random(seed)
    shuffled = dice.sample(cases, len(cases))
    first: dict[str, Case] = {}
    for case in shuffled:
        first.setdefault(case.command, case)
    chosen = [*first.values(), *(case for case in shuffled if case not in first.values())]
    return chosen[:count]


def _of_surroundings(words: str, subject: Subject) -> Iterator[Case]:
    for good in subject.good:
        for surroundings in ("plain", *HARMLESS, *HARMFUL, *STREAMS):
            what = surroundings + (f" ({' '.join(good[:2])})" if len(subject.good) > 1 else "")
            yield Case(
                command=words,
                argv=(*words.split(), *good),
                surroundings=surroundings,
                what=what,
                is_service=subject.is_service,
            )


def _of_values(words: str, command: click.Command, subject: Subject) -> Iterator[Case]:
    for option in command.params:
        if not isinstance(option, click.Option) or option.is_flag:
            continue
        before, after = subject.values, subject.after
        if words == "run" and is_for_clusters(option.name or ""):
            before = ("--on", "kubernetes", *before, *_MADE)
        if (option.name or "").startswith("rdma_"):
            before = (*before, "--rdma", "shared")
        for value, codes in _values_for(words, option):
            yield Case(
                command=words,
                argv=(
                    *words.split(),
                    *before,
                    f"{option.opts[-1]}={value}" if option.opts[-1].startswith("--") else option.opts[-1],
                    *(() if option.opts[-1].startswith("--") else (value,)),
                    *after,
                ),
                what=f"{option.opts[-1]} {value[:12]!r}",
                codes=codes,
                mentions=(
                    *option.opts,
                    *option.secondary_opts,
                    option.name or "",
                    *([value] if value else []),
                ),
                is_service=subject.is_service,
            )


def _values_for(words: str, option: click.Option) -> Iterator[tuple[str, frozenset[int]]]:
    """Return (value, right codes) of values that are bad or odd for an option."""
    name, metavar = option.name or "", option.metavar or ""
    is_number = metavar in _NUMBERS or option.type.name.partition(" ")[0] in ("integer", "float")
    if is_number:
        only = frozenset((REQUEST,))
        yield from ((text, only) for text in ("x", "nan", "inf", "1e400", "9" * 400, ""))
        yield "-1", ANY_GOOD_CODE if (words, name) in _NEGATIVE_IS_GOOD else only
        yield "99999999999999999999", ANY_GOOD_CODE
        return
    if name in _INPUTS or metavar in ("FILE", "DIR", "PATH"):
        only = frozenset((REQUEST,)) if name in _INPUTS else ANY_GOOD_CODE
        for text in _PLACES:
            # No kubeconfig means the usual one, and nobody reads ssh's files where no host is remote.
            is_good = (name, text) == ("kubeconfig", "") or (text == "binary" and name.startswith("ssh_"))
            yield text, ANY_GOOD_CODE if is_good else only
        return
    if isinstance(option.type, click.Choice):
        yield "nonsense", frozenset((REQUEST,))
        return
    yield from ((text, ANY_GOOD_CODE) for text in _TEXTS)


def _of_contents() -> Iterator[Case]:
    for file, bad in BROKEN.items():
        for argv in _READERS[file]:
            command = next(
                words for words, _ in leaves() if argv[: len(words.split())] == tuple(words.split())
            )
            for contents in bad:
                is_bad = bool(contents) or file not in _MAY_BE_EMPTY
                codes = frozenset((REQUEST,)) if is_bad else ANY_GOOD_CODE
                yield Case(
                    command=command,
                    argv=argv,
                    what=f"{file} {contents[:16]!r} {len(contents)}",
                    codes=codes if file != "kubeconfig" else ANY_GOOD_CODE,
                    mentions=(file, file.partition("/")[0]),
                    contents=(file, contents),
                )


def _of_words() -> Iterator[Case]:
    """Calls that no table makes."""
    only, refused = frozenset((REQUEST,)), frozenset((REFUSED,))
    rows: tuple[tuple[str, tuple[str, ...], frozenset[int], tuple[str, ...]], ...] = (
        ("run", ("run", "-n", "100000", *_TRAIN), only, ("-n",)),
        ("run", ("run", "-n", "100000", "--oversubscribe", *_TRAIN), frozenset((REQUEST, REFUSED)), ("-n",)),
        ("run", ("run", "--mpi", "lam", *_TRAIN), only, ("--mpi",)),
        ("run", ("run", "--warm", *_TRAIN), only, ("--warm",)),
        ("run", ("run", "--warm", "--max-restarts", "2", "true"), only, ("--warm",)),
        ("run", ("run", "--warm", "--max-restarts", "2", "python", "-c", "0"), only, ("--warm",)),
        ("run", ("run", "python", "missing.py"), only, ("missing.py",)),
        ("run", ("run", "python", "directory"), only, ("directory",)),
        ("run", ("run", "python", "dangling"), only, ("dangling",)),
        ("run", ("run", "python", "secret.py"), frozenset((OK, REQUEST)), ("secret.py",)),
        ("run", ("run", "./bad-interpreter"), only, ("bad-interpreter",)),
        ("run", ("run", "./no-interpreter"), only, ("no-interpreter",)),
        ("run", ("run", "./directory"), only, ("directory",)),
        ("run", ("run", "nonsense-program"), only, ("nonsense-program",)),
        ("run", ("run", "-H", "127.0.0.2:2", "--ssh-port", "1", *_TRAIN), refused, ("127.0.0.2",)),
        ("run", ("run", "--json-file", "/dev/full", *_TRAIN), frozenset((REQUEST, REFUSED)), ("--json",)),
        ("run", ("run", "--mpirun-arg", ":", *_TRAIN), only, ("--mpirun-arg",)),
        ("run", ("--config", "missing.toml", "run", *_TRAIN), only, ("missing.toml",)),
        ("k8s delete", ("k8s", "delete", "job", ""), only, ("JOB",)),
        ("k8s explain", ("k8s", "explain", ""), only, ("JOB",)),
        ("run", ("run", "--lab", *_TRAIN), frozenset((REFUSED,)), ("lab",)),
        ("run", ("run",), ANY_GOOD_CODE, ()),
        ("run", ("run", "--", "\udcff"), only, ("COMMAND",)),
        ("lab up", ("lab", "up", "--hosts", "2"), ANY_GOOD_CODE, ()),
        ("scale", ("scale", "--strong", *_TRAIN), only, ("--global-batch",)),
        ("scale", ("scale", "--resume", "training"), only, ("training",)),
        ("report", ("report", "kept", "training"), ANY_GOOD_CODE, ()),
        ("report", ("report", "kept", "--against", "training", "--fail-below", "0.9"), only, ("training",)),
        ("report", ("report", "kept", "--fail-below", "0.9"), only, ("--against", "--fail-below")),
        ("predict", ("predict", "pairs"), only, ("pairs",)),
        ("bench broadcast", ("bench", "broadcast", "-n", "2", "--oversubscribe", "--root", "7", "--dry-run"),
         only, ("--root",)),
        ("bench train", ("bench", "train", "--data", "missing", "-n", "1"), only, ("--data",)),
    )  # fmt: skip
    for command, argv, codes, mentions in rows:
        shown = " ".join(argv[1:6])
        yield Case(command=command, argv=argv, what=shown, codes=codes, mentions=mentions)
    for words, _ in leaves():
        for argv in (("--nonsense",), ("\udcff",), ("",), ("x" * 100000,), ("-h",)):
            shown = argv[0][:12]
            codes = frozenset((OK,)) if argv == ("-h",) else ANY_GOOD_CODE | {REQUEST}
            if words not in SUBJECTS:
                continue
            yield Case(command=words, argv=(*words.split(), *argv), what=f"words {shown!r}", codes=codes)
