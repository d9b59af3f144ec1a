"""Draws what a script does between wrap and step, as a plain value; `script.py` carries it out.

A sequence is valid as it is drawn, and so is every one that has fewer operations: what has nothing to act on
(a thaw where nothing is frozen) does nothing. It is a dictionary that JSON can hold:

    seed, size, per_host   the data; the number of ranks; RINGLEADER_RANKS_PER_HOST, or "" for one host
    net                    what the model has: conv, branch (which ranks use it), embedding
    optimizer, optimizers  the class; one, or two on disjoint or on the same parameters
    wrap                   arguments of DistributedOptimizer that are not the default
    start                  operations before wrap
    steps                  a list of steps: zero, before, backward, edits, update, after
"""

import random
from collections.abc import Iterator
from typing import Any

Sequence = dict[str, Any]
Operation = list[Any]

LAYOUTS = ((2, ""), (3, ""), (2, "1"), (3, "1"))
"""Numbers of ranks, and how many of them a host has: with one each, gradients travel during backward."""
TYPES = ("bfloat16", "half", "double", "float")
ZEROS = ("none", "zeros", "model none", "model zeros", "loop none", "never")
PARTS = ("conv", "body", "branch", "embedding", "late")
"""Modules that may be frozen; the head is always trained."""
ROUNDING = {"topk", "powersgd"}
"""Compressions that no reference without them can follow."""


def equal_only(sequence: Sequence) -> bool:
    wrap = sequence["wrap"]
    return wrap.get("compression") in ROUNDING or wrap.get("op") == "Adasum"


def overlaps(sequence: Sequence) -> bool:
    """Return whether gradients travel during backward, so that only `synchronize` makes them safe to edit."""
    return sequence["per_host"] == "1" and not sequence["wrap"].get("shard")


def draw(seed: int) -> Sequence:
    """Return the sequence of this seed; the layout depends on the seed alone, so that runs can sort by it."""
    return _Draw(random.Random(seed), seed).sequence()


class _Draw:
    def __init__(self, dice: random.Random, seed: int) -> None:
        self._dice, self._seed = dice, seed
        self._size, self._per_host = LAYOUTS[seed % len(LAYOUTS)]

    def _often(self, share: float) -> bool:
        return self._dice.random() < share

    def sequence(self) -> Sequence:
        pick = self._dice.choice
        self._optimizer = pick(["sgd", "momentum", "momentum", "adamw"])
        embeddings = ["none", "none", "dense", "tied"] + ["sparse"] * (self._optimizer != "adamw")
        self._net = {
            "conv": self._often(0.5),
            "branch": pick(["none", "none", "all", "rank 0", "turns", "nobody"]),
            "embedding": pick(embeddings),
        }
        self._wrap = self._arguments()
        # Two sharded ones in turn: a frozen parameter whose gradient is zero is stepped by one of them alone.
        shard = bool(self._wrap.get("shard"))
        self._optimizers = pick(["one"] * 6 + ["disjoint", "one" if shard else "alternate"])
        drawn: Sequence = {
            "seed": self._seed,
            "size": self._size,
            "per_host": self._per_host,
            "net": self._net,
            "optimizer": self._optimizer,
            "optimizers": self._optimizers,
            "wrap": self._wrap,
        }
        if self._optimizers == "alternate" and overlaps(drawn):
            # Nothing may travel before step, as the error for it says.
            self._wrap["bucket_cap_mb"] = 100
            self._wrap.pop("groups", None)
        self._travels = overlaps(drawn)
        self._equal_only = equal_only(drawn)
        start: list[Operation] = [["scheduler", self._scheduler()]] if self._often(0.2) else []
        start += [["keep group"]] if self._often(0.15) else []
        start += [["hook", pick(["tensor", "accumulated"])]] if self._often(0.1) else []
        start += [["freeze", pick(PARTS), True]] if self._often(0.15) else []
        self._when = pick(["first", "last"])
        # About one sequence in three changes much, the others one or two things.
        self._share = pick([0.15, 0.15, 0.5])
        drawn["start"] = start
        drawn["steps"] = [self._step() for _ in range(self._dice.randint(2, 5))]
        return drawn

    def _arguments(self) -> dict[str, Any]:
        pick, often = self._dice.choice, self._often
        wrap: dict[str, Any] = {}
        if often(0.2) and self._net["embedding"] != "sparse":
            wrap["shard"] = True
        if often(0.3):
            wrap["compression"] = pick(["fp16", "bf16"] + ([] if wrap.get("shard") else sorted(ROUNDING)))
        if often(0.3) and wrap.get("compression") not in ROUNDING:
            adasum = self._size == 2 and not wrap
            wrap["op"] = pick(["Sum", "Adasum"] if adasum else ["Sum"])
        if often(0.2) and "op" not in wrap and wrap.get("compression") not in ROUNDING:
            wrap["gradient_predivide_factor"] = 2.0
        if often(0.2) and not wrap.get("shard"):
            wrap["groups"] = pick([1, 2, "lists"])
        if often(0.3) and not wrap.get("shard"):
            wrap["bucket_cap_mb"] = 0.0001
        if often(0.1) and self._size == 3 and wrap.get("op") != "Adasum":
            wrap["process_set"] = [0, 1]
        if often(0.25):
            wrap["backward_passes_per_step"] = 2
        if often(0.3) and self._net["embedding"] == "sparse":
            wrap["sparse_as_dense"] = True
        if often(0.2):
            wrap["named"] = False
        return wrap

    def _scheduler(self) -> str:
        return self._dice.choice(["step", "lambda", "cosine", "onecycle", "plateau"])

    def _step(self) -> dict[str, Any]:
        step: dict[str, Any] = {"zero": self._zero(), "before": list(self._operations())}
        step["update"] = update = self._update()
        step["backward"] = [] if update[0] == "closure" else self._backward()
        step["edits"] = self._edits(update[0])
        step["after"] = list(self._operations())
        return step

    def _zero(self) -> list[str]:
        never = self._wrap.get("op") or self._wrap.get("shard") or self._equal_only
        how = self._dice.choice([one for one in ZEROS if one != "never" or not never])
        return [self._when, how]

    def _backward(self) -> list[list[str]]:
        """Return backward passes: [where, kind]."""
        passes = self._wrap.get("backward_passes_per_step", 1)
        kinds = ["plain"] * 4 + ["autograd.grad"]
        if self._net["embedding"] != "sparse":
            kinds += ["create graph", "penalty"]
        local = [["no_sync", "plain"] for _ in range(self._dice.randint(1, 2))] if self._often(0.1) else []
        if passes == 2 and self._often(0.4):
            return [*local, ["sync", "two losses"]]
        count = passes if self._often(0.9) else 1
        return local + [["sync", self._dice.choice(kinds)] for _ in range(count)]

    def _update(self) -> Operation:
        pick = self._dice.choice
        adasum, shard = self._wrap.get("op") == "Adasum", self._wrap.get("shard")
        kinds = ["step"] * 3 + ["skip"] * 2 * (not adasum) + ["scaler", "unscale"] * (not adasum)
        single = self._wrap.get("backward_passes_per_step", 1) == 1 and self._optimizers == "one"
        kinds += ["closure"] * (single and not adasum)
        kinds += ["clip shard"] * 2 * bool(shard)
        kinds += ["twice"] * (not adasum and not shard and "op" not in self._wrap and not self._equal_only)
        kind = pick(kinds)
        if kind == "skip":
            edit = pick(
                ["clip norm", "clip value", "new", "data", "in place", "nothing", "keep"]
                + ["drop"] * (not shard)
            )
            return ["skip", edit]
        return [kind]

    def _edits(self, update: str) -> list[Operation]:
        found: list[Operation] = []
        if self._often(0.05):
            found.append(["metric"])
        if update == "closure" or self._travels:
            return found
        if self._often(self._share * 0.5):
            found.append([self._dice.choice(["clip norm", "new", "data", "in place", "drop"])])
        return found

    def _operations(self) -> Iterator[Operation]:
        if not self._often(self._share * 2):
            return
        for _ in range(self._dice.choice([1, 1, 2, 3])):
            yield self._operation()

    def _operation(self) -> Operation:
        pick = self._dice.choice
        table: list[tuple[str, list[Any]]] = [
            ("convert", [pick([*TYPES, "channels_last"])]),
            ("convert", [pick([*TYPES, "channels_last"])]),
            ("share memory", []),
            ("replace data", []),
            ("replace grad data", []),
            ("freeze", [pick(PARTS), self._often(0.5)]),
            ("freeze", [pick(PARTS), self._often(0.5)]),
            ("thaw", [pick(PARTS)]),
            ("thaw", [pick(PARTS)]),
            ("add group", [pick(["wrapped", "plain"])]),
            ("scheduler", [self._scheduler()]),
            ("lr", [pick(["wrapped", "plain", "kept"])]),
            ("keep", [pick(["one", "view", "list"])]),
            ("keep", [pick(["one", "view", "list"])]),
            ("flat buffer", []),
            ("deepcopy", [pick(["drop", "keep"])]),
            ("save", []),
            ("load", []),
            ("rewrap", [pick(["drop", "keep"])]),
            ("mul", []),
            ("noise", []),
            ("average", []),
            ("copy model", []),
            ("broadcast parameters", [pick(["state_dict", "named_parameters"])]),
            ("broadcast optimizer", []),
            ("metric", []),
            ("passes", [2]),
            ("hook", ["tensor"]),
            ("local step", []),
            ("drop", []),
            ("evaluate", []),
            ("reduce gradients", []),
        ]
        name, arguments = pick(table)
        return [name, *arguments]


def shrinks(sequence: Sequence) -> Iterator[Sequence]:
    """Give sequences that do less than this one, those that do much less first."""
    steps, start, wrap = sequence["steps"], sequence["start"], sequence["wrap"]
    if len(steps) > 1:
        yield from (sequence | {"steps": steps[:at] + steps[at + 1 :]} for at in range(len(steps)))
    for at, step in enumerate(steps):
        yield from (_with_step(sequence, at, less) for less in (*_shorter(step), *_plainer(step)))
    if any(step["zero"][0] == "last" for step in steps):
        # All at once: a step that zeroes first before one that zeroes last adds up.
        yield sequence | {"steps": [step | {"zero": ["first", step["zero"][1]]} for step in steps]}
    yield from (sequence | {"start": start[:at] + start[at + 1 :]} for at in range(len(start)))
    for key in wrap:
        if key != "backward_passes_per_step" or not _needs_passes(sequence):
            yield sequence | {"wrap": {name: one for name, one in wrap.items() if name != key}}
    for key, plain in (("conv", False), ("branch", "none"), ("embedding", "none")):
        if sequence["net"][key] != plain:
            yield sequence | {"net": sequence["net"] | {key: plain}}
    for key, plain in (("optimizers", "one"), ("optimizer", "sgd")):
        if sequence[key] != plain:
            yield sequence | {key: plain}


def _shorter(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give what to change of a step so that it has an operation less."""
    for key in ("before", "edits", "after", "backward"):
        some = step[key]
        if len(some) > (key == "backward"):
            yield from ({key: some[:at] + some[at + 1 :]} for at in range(len(some)))


def _plainer(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if step["update"] != ["step"]:
        yield {"update": ["step"], "backward": step["backward"] or [["sync", "plain"]]}
    if step["zero"][1] != "none":
        yield {"zero": [step["zero"][0], "none"]}
    for index, one in enumerate(step["backward"]):
        if one[1] not in ("plain", "two losses"):
            rest = [*step["backward"][:index], [one[0], "plain"], *step["backward"][index + 1 :]]
            yield {"backward": rest}


def _needs_passes(sequence: Sequence) -> bool:
    """Return whether a step has two backward passes that are exchanged."""
    return any(
        sum(2 if kind == "two losses" else 1 for where, kind in step["backward"] if where == "sync") > 1
        for step in sequence["steps"]
    )


def _with_step(sequence: Sequence, at: int, changes: dict[str, Any]) -> Sequence:
    steps = list(sequence["steps"])
    steps[at] = steps[at] | changes
    return sequence | {"steps": steps}


def operations(sequence: Sequence) -> Iterator[Operation]:
    yield from (["start", *one] for one in sequence["start"])
    for step in sequence["steps"]:
        yield ["zero", *step["zero"]]
        yield from step["before"]
        yield from (["backward", *one] for one in step["backward"])
        yield from (["edit", *one] for one in step["edits"])
        yield ["update", *step["update"]]
        yield from step["after"]
