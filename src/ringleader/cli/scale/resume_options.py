"""``ringleader scale --resume``: the options of a stored run are taken again, others are added or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

from ringleader.cli.scale.scale_options import ScaleOptions
from ringleader.cli.typed_command import faults_of_words, given, options_of, spelling
from ringleader.errors import Fault, RequestError
from ringleader.render.rank_environment import is_secret
from ringleader.scaling import Run

_OF_THIS_CALL = frozenset(
    [
        *("command", "grid", "repeats", "name", "output", "replace", "resume"),
        *("dry_run", "sizes", "json", "json_file", "no_page"),
    ]
)
"""Parameters that belong to one call: they are not kept with the run, or elsewhere in it."""
_NAMES_HOSTS = frozenset(("hosts", "hostfile", "lab", "lab_name", "on", "nnodes", "nproc_per_node"))
_MAY_DIFFER = (
    _OF_THIS_CALL
    | _NAMES_HOSTS
    | frozenset(("no_allocation", "ssh_port", "ssh_identity", "ssh_config", "accept_new_host_keys"))
    | frozenset(("timeout", "grace", "lost_after", "start_timeout", "baseline", "context", "kubeconfig"))
    | frozenset(("in_step", "budget"))
)
"""Options that may be given anew: they change nothing that is measured, or ``bench.resumption`` compares."""


def kept_words(ctx: click.Context) -> tuple[str, ...]:
    """Return the options of this call as words, wherever they were set, without values that sound secret."""
    return _words(ctx, _set_values(ctx))


def _set_values(ctx: click.Context) -> dict[str, Any]:
    """Return the values that were set, of options that are kept with the run."""
    found = {}
    for name, value in ctx.params.items():
        is_default = ctx.get_parameter_source(name) in (ParameterSource.DEFAULT, None)
        if name not in _OF_THIS_CALL and not is_default and value is not False and value not in (None, ()):
            found[name] = value
    return found


def _words(ctx: click.Context, values: Mapping[str, Any]) -> tuple[str, ...]:
    words: list[str] = []
    for parameter in ctx.command.params:
        name, value = parameter.name or "", values.get(parameter.name or "")
        for one in () if value is None else value if isinstance(value, tuple) else (value,):
            words += _option(spelling(parameter), one, name)
    return tuple(words)


def _option(option: str, value: object, name: str) -> list[str]:
    if value is True:
        return [option]
    text = f"{value:.12g}" if isinstance(value, float) else str(value)
    if name == "x" and is_secret(text.partition("=")[0]):
        text = text.partition("=")[0]
    return [f"{option}={text}"] if option.startswith("--") else [option, text]


def resumed_options(ctx: click.Context, stored: Run) -> tuple[ScaleOptions, tuple[str, ...]]:
    """Return the stored options with those of this call over them, and the words to be kept from now on.

    RequestError where they disagree.
    """
    words = () if stored.request is None else stored.request.options
    kept = ctx.command.make_context("scale", list(words))
    now = {parameter.name or "": parameter for parameter in given(ctx)}
    faults = [*_forbidden(now), *_disagreeing(now, ctx.params, kept.params)]
    if faults:
        raise RequestError(faults)
    values = _set_values(kept)
    if now.keys() & _NAMES_HOSTS:
        values = {name: value for name, value in values.items() if name not in _NAMES_HOSTS}
    values |= {name: ctx.params[name] for name in now if name not in _OF_THIS_CALL | {"x"}}
    of_this_call = {name: ctx.params[name] for name in _OF_THIS_CALL if name in ctx.params}
    defaults = ctx.command.make_context("scale", []).params
    merged = defaults | values | of_this_call
    merged["x"] = _variables(merged["x"], ctx.params["x"] if "x" in now else ())
    merged["command"] = ctx.params["command"] or stored.context.command
    if "repeats" not in now:
        merged["repeats"] = stored.repeats
    faults = tuple(faults_of_words(ctx))
    return options_of(ScaleOptions, merged, faults=faults), _words(ctx, values)


def _variables(kept: tuple[str, ...], now: tuple[str, ...]) -> tuple[str, ...]:
    """Return the variables of both; a secret's value, which is not kept, is taken from those of now."""
    names = {one.partition("=")[0] for one in now}
    return (*(one for one in kept if one not in names), *now)


def _forbidden(now: Mapping[str, click.Parameter]) -> list[Fault]:
    if "replace" not in now:
        return []
    hint = "leave out one of the two: --resume keeps what was measured, --replace writes over it"
    return [Fault(where="--resume and --replace", what="contradict each other", hint=hint)]


def _disagreeing(
    now: Mapping[str, click.Parameter], params: Mapping[str, Any], kept: Mapping[str, Any]
) -> list[Fault]:
    """Return the options of this call that the stored run was measured without, or with another value."""
    found = []
    for name, parameter in now.items():
        old, new = kept.get(name), params[name]
        if name == "x":
            new = tuple(one for one in new if one.partition("=")[0] not in (old or ()))
            same = set(new) <= set(old or ())
        else:
            same = old == new
        if name not in _MAY_DIFFER and not same:
            what = f"the run was measured with {_shown(old)}; it cannot go on with {_shown(new)}"
            hint = "leave it out, or begin a new run with another --name"
            found.append(Fault(where=spelling(parameter), what=what, hint=hint))
    return found


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "it" if value else "it off"
    return "the default" if value is None else str(value)
