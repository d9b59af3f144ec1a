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
ONLY_REQUEST, ONLY_REFUSED = frozenset((REQUEST,)), frozenset((REFUSED,))


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

    @property
    def name(self) -> str:
        return f"{self.command} · {self.what or self.surroundings}"

    @property
    def is_service(self) -> bool:
        """It runs until SIGTERM, which it gets after some seconds."""
        return self.command == "operator run"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """How a command is called by somebody who means well; words are separated by spaces."""

    good: tuple[str, ...]
    """Calls (without the command's own words) that work, or that fail for lack of a cluster or lab only."""
    values: str
    """Words before an option whose value is tried: nothing starts if the value turns out to be good."""
    after: str
    """Words behind it."""


def _called(*good: str, values: str = "", after: str = "") -> Subject:
    return Subject(good=good or ("",), values=values, after=after)


_MADE = "--image example.org/team/train:1 -n 2"
_TRAIN = "python train.py"
_TWO = "-n 2 --oversubscribe"
_ONCE = "-b 8 -e 8 --replace --name trial"
_MODEL = "--model resnet-50 --rate 219 --batch 64"
_DIGEST = f"example.org/team/train@sha256:{'5' * 64}"

SUBJECTS: dict[str, Subject] = {
    "run": _called(f"-n 1 {_TRAIN}", f"--dry-run -n 1 {_TRAIN}", values="--dry-run", after=_TRAIN),
    "scale": _called(
        f"--grid 1x1 --repeats 1 --no-uncoupled --no-page --replace --name trial {_TRAIN}",
        values="--dry-run --no-page",
        after=_TRAIN,
    ),
    "bench p2p": _called("--dry-run", f"{_ONCE} --seconds 1", values="--dry-run"),
    **{
        f"bench {operation}": _called(f"{_TWO} --dry-run", values=f"--dry-run {_TWO}")
        for operation in ("allgather", "reducescatter", "broadcast", "alltoall", "sendrecv")
    },
    "bench allreduce": _called(
        f"{_TWO} {_ONCE} --iters 1 -w 0",
        "--from-file nccl-tests.txt --name trial",
        values=f"--dry-run {_TWO}",
    ),
    "bench train": _called("--dry-run -n 1", values="--dry-run"),
    "report": _called(
        "kept",
        "kept --format json -o out.json --replace",
        "collective pairs training",
        "collective --against collective --fail-below 0.9",
        after="kept",
    ),
    "predict": _called(
        _MODEL, "kept --gradients 1e8 --batch 64", "job-profile.toml --json", values=f"{_MODEL} --ranks 1,8"
    ),
    "lab up": _called("--dry-run", values="--dry-run"),
    "lab down": _called("", "--dry-run", values="--dry-run"),
    "lab status": _called("", "--json"),
    "lab exec": _called("h1 -- true", after="h1 -- true"),
    "lab slow": _called("h1 --into 1gbit", "h1 --off", values="--dry-run", after="h1"),
    **{f"lab {verb}": _called("h1", after="h1") for verb in ("shell", "cut", "heal", "kill")},
    "completion": _called("bash"),
    "analyze": _called("trace.json", "trace.json --json", after="trace.json"),
    "k8s submit": _called(
        "job.yaml", "--dry-run job.yaml", values=f"--dry-run {_MADE}", after=f"-- {_TRAIN}"
    ),
    "k8s status": _called("", "job --json"),
    "k8s logs": _called("job", after="job"),
    "k8s explain": _called("job", after="job"),
    "k8s delete": _called("--yes job", "job", after="job"),
    "slurm status": _called("", "7 --json"),
    "slurm logs": _called("7", after="7"),
    "slurm cancel": _called("7", values="--dry-run", after="7"),
    "render mpijob": _called("job.yaml", f"{_MADE} -- {_TRAIN}", values=_MADE, after=_TRAIN),
    "render pods": _called(f"{_MADE} -- {_TRAIN}", values=_MADE, after=_TRAIN),
    "render trainjob": _called(f"{_MADE} -- {_TRAIN}", values=_MADE, after=_TRAIN),
    "render compose": _called(
        "--image a:1 -n 2", "--image a:1 -n 2 -o application", values="--image a:1 -n 2"
    ),
    "render env": _called("", "--format json"),
    "render topology": _called("", "--format svg -o machine.svg"),
    "image list": _called(),
    "image render": _called("recipe.toml", "recipe.toml -o context", after="recipe.toml"),
    "image check": _called("recipe.toml", after="recipe.toml"),
    "image build": _called("--dry-run recipe.toml", values="--dry-run", after="recipe.toml"),
    "image solve": _called("torch=2.8 --json", after="torch=2.8"),
    "image lock": _called(
        "--dry-run recipe.toml",
        "--timeout 5 -o out.lock recipe.toml",
        values="--dry-run",
        after="recipe.toml",
    ),
    "image sign": _called(f"--dry-run {_DIGEST}", values="--dry-run", after=f"--key recipe.toml {_DIGEST}"),
    "image verify": _called(f"--key recipe.toml {_DIGEST}", after=f"--key recipe.toml {_DIGEST}"),
    "doctor": _called("", "--facts", "--sbom sbom.json"),
    "config": _called("", "--json"),
    "operator crd": _called("", "--json"),
    "operator manifests": _called(),
    "operator run": _called("--port 0 --no-leader-election", values="--port 0"),
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
_PLACES = ("missing/one", "directory", "pipe", "/dev/zero", "dangling", "binary", *_TEXTS)
_NEGATIVE_IS_GOOD = {("operator run", "port"), ("operator run", "monitoring_port"), ("k8s logs", "tail")}

_DEEP = b"[" * 20000
_MANY_ALIASES = b"a: &a [x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(9)
)
"""Ten lines that stand for 9**10 values."""
_NO_TEXT = (b"\0", b"\xff\xfe")
_IN_JSON = (
    *_NO_TEXT, b"", b"{", b"[]", b"null", _DEEP, b"1" * 5000,
    b'{"schema": 1, "points": ' + b"9" * 400 + b"}", b'{"schema": 1e400}',
    b'{"schema": 1, "name": "\\ud800"}',
    b'\xef\xbb\xbf{"schema": 99}', b'\x1b[0m{"schema": 99}',
)  # fmt: skip
"""A number of 400 digits, one beyond every float, half a character; what editors and terminals put first."""
_IN_RUNS = (
    *_IN_JSON, b'{"schema": 1}', b'{"schema": 99, "kind": "collective"}',
    b'{"schema": 1, "kind": "nonsense"}', b'{"schema": 1, "kind": "collective", "series": 7, "ranks": -1}',
)  # fmt: skip
_API = b"apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\n"
_KUBE = "--kubeconfig kubeconfig"

BROKEN: dict[str, tuple[tuple[str, ...], tuple[bytes, ...]]] = {
    "job.yaml": (("k8s submit --dry-run job.yaml", "render mpijob job.yaml"), (
        *_NO_TEXT, b"", b"a: [", b"a: b: c", _DEEP, b"- 1\n- 2\n", b"null\n", b"kind: MPIJob\n",
        _API + b"metadata: 7\nspec: []\n", _API + b"metadata: {name: a}\nspec: {slotsPerWorker: -9}\n",
        b"a: &a [*a]\n", _MANY_ALIASES, b"!!python/object/apply:os.system [true]\n",
        b"{" + b'"a":' * 3000, b"x: 1\nx: 2\n", b"\t- a\n",
    )),
    "recipe.toml": ((
        "image check recipe.toml", "image render recipe.toml", "image build --dry-run recipe.toml",
        "image lock --dry-run recipe.toml",
    ), (
        *_NO_TEXT, b"", b"name = ", b"[torch\n", b"name = 1979-05-27\n", b"name='a'\nname='b'\n",
        b"name = 'a'\n[torch]\nversion = 99999999999999999999999\n", b"a = " + _DEEP,
        b"[" + b".".join([b"a"] * 3000) + b"]\n",
    )),
    "kubeconfig": ((f"k8s status {_KUBE}", f"run --on pods --dry-run {_MADE} {_KUBE} {_TRAIN}"), (
        *_NO_TEXT, b"", b"a: [", _DEEP, b"[]", b"current-context: x\ncontexts: 7\n",
        b"apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: b}}]\n",
    )),
    "kept/run.json": (("report kept", "report kept kept", "predict kept --gradients 8"), _IN_RUNS),
    "collective/run.json": ((
        "report collective", "report kept --against collective --fail-below 0.9", "scale --resume collective",
    ), _IN_RUNS),
    "pairs/run.json": (("report kept pairs",), _IN_RUNS),
    "training/run.json": (("report training --format html",), _IN_RUNS),
    "nccl-tests.txt": (("bench allreduce --from-file nccl-tests.txt",), (
        *_IN_JSON, b"hello\n", b"1024 " * 12 + b"\n", b"\xef\xbb\xbf# nThread 1\n", b"\x1b[?2004h",
        b"[1,0]<stdout>: 1 2 3\n",
    )),
    "trace.json": (("analyze trace.json",), (
        *_IN_JSON, b'{"traceEvents": 7}', b'{"traceEvents": [7, {"ph": "X"}]}',
    )),
    "curve.txt": (("predict job-profile.toml --curve curve.txt",), (
        *_NO_TEXT, b"", b"1 x\n", b"1 1\n", b"1 -1\n2 0\n", b"1 nan\n2 inf\n", _DEEP,
    )),
    "hosts.txt": ((f"run --dry-run --hostfile hosts.txt {_TRAIN}",), (
        *_NO_TEXT, b"", b"h1 slots=-1\n", b"h1 slots=9" + b"9" * 5000, b"h1:2:3 =\n",
        b"-oProxyCommand=x\n", b"h1 slots =\n", b"h1 = 4\n",
    )),
    "variables": ((f"run --dry-run --env-file variables {_TRAIN}",), (
        *_NO_TEXT, b"", b"A", b"=x\n", b"A B=c\n", b"A='\n", b"1=2\n",
    )),
    "facts.json": ((
        "doctor --facts-from facts.json", "render env --facts-from facts.json",
        "render topology --facts-from facts.json",
    ), (*_IN_JSON, b'{"hostname": 7}', b'{"hostname": "a"}')),
    "job-profile.toml": (("predict job-profile.toml",), (
        *_NO_TEXT, b"", b"a = ", b"batch = 'many'\n", b"batch = -1\nstep_seconds = 0\n", b"a = " + _DEEP,
        b"batch = nan\nstep_seconds = 1\ngradient_bytes = 9" + b"9" * 400 + b"\n",
        b"batch = 1\nstep_seconds = 1\ngradient_bytes = 1\nlayers = 7\npoints = [[]]\nparts = 3\n",
    )),
    "ringleader.toml": ((f"run --dry-run {_TRAIN}", "config"), (
        *_NO_TEXT, b"[run]\nnp = ", b"[run]\nnp = " + b"[" * 3000, b"[run]\nnp = " + b"1" * 5000,
        b"[run]\nworkdir = 'a'\nx = ['A=\\u0000']\noutput = \"a\\u0000\"\n", b"[nonsense]\n",
    )),
    "profile.toml": (("doctor --expect profile.toml",), (
        *_NO_TEXT, b"a = ", b"nics = 'many'\n", b"[nic]\ncount = -1\n", b"a = " + _DEEP,
    )),
}  # fmt: skip
"""File → commands that read it, contents that are no good, or empty."""
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
    return [words for words, _ in leaves() if words not in SUBJECTS]


def all_cases() -> list[Case]:
    found: list[Case] = []
    for words, command in leaves():
        if words in SUBJECTS:
            found += _of_surroundings(words, SUBJECTS[words])
            found += _of_values(words, command, SUBJECTS[words])
    return [*found, *_of_contents(), *_of_words()]


def sample(cases: list[Case], count: int, seed: int) -> list[Case]:
    """Return this many cases by chance, of every command at least one where there are enough."""
    shuffled = random.Random(seed).sample(cases, len(cases))
    first: dict[str, Case] = {}
    for case in shuffled:
        first.setdefault(case.command, case)
    chosen = [*first.values(), *(case for case in shuffled if case not in first.values())]
    return chosen[:count]


def _of_surroundings(words: str, subject: Subject) -> Iterator[Case]:
    for good in subject.good:
        for surroundings in ("plain", *HARMLESS, *HARMFUL, *STREAMS):
            what = f"{surroundings} ({good})" if len(subject.good) > 1 else surroundings
            argv = (*words.split(), *good.split())
            yield Case(command=words, argv=argv, surroundings=surroundings, what=what)


def _of_values(words: str, command: click.Command, subject: Subject) -> Iterator[Case]:
    for option in command.params:
        if not isinstance(option, click.Option) or option.is_flag:
            continue
        before, name, word = subject.values, option.name or "", option.opts[-1]
        if words == "run" and is_for_clusters(name):
            before = f"--on kubernetes {before} {_MADE}"
        if name.startswith("rdma_"):
            before += " --rdma shared"
        for value, codes in _values_for(words, option):
            given = (f"{word}={value}",) if word.startswith("--") else (word, value)
            yield Case(
                command=words,
                argv=(*words.split(), *before.split(), *given, *subject.after.split()),
                what=f"{word} {value[:12]!r}",
                codes=codes,
                mentions=(*option.opts, *option.secondary_opts, name, *([value] if value else [])),
            )


def _values_for(words: str, option: click.Option) -> Iterator[tuple[str, frozenset[int]]]:
    """Return (value, right codes) of values that are bad or odd for an option."""
    name, metavar = option.name or "", option.metavar or ""
    if metavar in _NUMBERS or option.type.name.partition(" ")[0] in ("integer", "float"):
        yield from ((text, ONLY_REQUEST) for text in ("x", "nan", "inf", "1e400", "9" * 400, ""))
        yield "-1", ANY_GOOD_CODE if (words, name) in _NEGATIVE_IS_GOOD else ONLY_REQUEST
        yield "99999999999999999999", ANY_GOOD_CODE
    elif name in _INPUTS or metavar in ("FILE", "DIR", "PATH"):
        for text in _PLACES:
            # No kubeconfig means the usual one, and nobody reads ssh's files where no host is remote.
            is_good = (name, text) == ("kubeconfig", "") or (text == "binary" and name.startswith("ssh_"))
            yield text, ONLY_REQUEST if name in _INPUTS and not is_good else ANY_GOOD_CODE
    elif isinstance(option.type, click.Choice):
        yield "nonsense", ONLY_REQUEST
    else:
        yield from ((text, ANY_GOOD_CODE) for text in _TEXTS)


def _command_of(argv: tuple[str, ...]) -> str:
    return next(words for words in SUBJECTS if words.split() == [*argv[: len(words.split())]])


def _of_contents() -> Iterator[Case]:
    for file, (readers, bad) in BROKEN.items():
        for argv in (tuple(reader.split()) for reader in readers):
            for contents in bad:
                may_be_good = file == "kubeconfig" or (not contents and file in _MAY_BE_EMPTY)
                yield Case(
                    command=_command_of(argv),
                    argv=argv,
                    what=f"{file} {contents[:16]!r} {len(contents)}",
                    codes=ANY_GOOD_CODE if may_be_good else ONLY_REQUEST,
                    mentions=(file, file.partition("/")[0]),
                    contents=(file, contents),
                )


_WORDS: tuple[tuple[str, frozenset[int], str], ...] = (
    ("run python directory", ONLY_REQUEST, "directory"),
    ("run python dangling", ONLY_REQUEST, "dangling"),
    ("run python secret.py", frozenset((OK, REQUEST)), "secret.py"),
    ("run ./bad-interpreter", ONLY_REQUEST, "bad-interpreter"),
    ("run ./no-interpreter", ONLY_REQUEST, "no-interpreter"),
    ("run ./directory", ONLY_REQUEST, "directory"),
    (f"run -n 100000 --oversubscribe {_TRAIN}", ONLY_REQUEST | ONLY_REFUSED, "-n"),
    (f"run -H 127.0.0.2:2 --ssh-port 1 {_TRAIN}", ONLY_REFUSED, "127.0.0.2"),
    (f"run --json-file /dev/full {_TRAIN}", ONLY_REQUEST | ONLY_REFUSED, "--json"),
    (f"run --mpirun-arg : {_TRAIN}", ONLY_REQUEST, "--mpirun-arg"),
    (f"run --lab {_TRAIN}", ONLY_REFUSED, "lab"),
    ("run -- \udcff", ONLY_REQUEST, "COMMAND"),
    ("lab up --hosts 2", ANY_GOOD_CODE, ""),
    (f"scale --strong {_TRAIN}", ONLY_REQUEST, "--global-batch"),
    ("scale --resume training", ONLY_REQUEST, "training"),
    ("report kept --against training --fail-below 0.9", ONLY_REQUEST, "training"),
    ("report kept --fail-below 0.9", ONLY_REQUEST, "--against"),
    ("predict pairs", ONLY_REQUEST, "pairs"),
    (f"bench broadcast {_TWO} --root 7 --dry-run", ONLY_REQUEST, "--root"),
    ("bench train --data missing -n 1", ONLY_REQUEST, "--data"),
)
"""Calls that no table makes: words, right codes, what is mentioned."""


def _of_words() -> Iterator[Case]:
    for call, codes, mention in _WORDS:
        argv = tuple(call.split())
        shown = " ".join(argv[1:6])
        mentions = (mention,) if mention else ()
        yield Case(command=_command_of(argv), argv=argv, what=shown, codes=codes, mentions=mentions)
    for words in SUBJECTS:
        for word in ("--nonsense", "\udcff", "", "x" * 100000, "-h"):
            codes = frozenset((OK,)) if word == "-h" else ANY_GOOD_CODE
            yield Case(command=words, argv=(*words.split(), word), what=f"words {word[:12]!r}", codes=codes)
