"""``ringleader predict``: from one rank and a network to what N ranks would do."""

from __future__ import annotations

import click

from ringleader.cli.json_output import JSON_OPTIONS, JsonOptions, show
from ringleader.cli.predict.predict_options import PredictOptions, request_of
from ringleader.cli.predict.prediction_text import as_document, as_text
from ringleader.cli.typed_command import Command, Option
from ringleader.predict.exchange_cost import ALGORITHMS
from ringleader.predict.forecast import forecast
from ringleader.predict.step_model import STRAGGLER, WIRE_BYTES


def predict(options: PredictOptions) -> None:
    """Predict, and print it."""
    request = request_of(options)
    found = forecast(
        request.job,
        request.setup,
        request.ranks,
        others=request.others,
        until=options.until,
        from_specifications=options.from_specifications,
        network_known=request.network_known,
    )
    is_json = options.json.json or options.format == "json"
    where = JsonOptions(json=is_json, json_file=options.json.json_file)
    form = "github" if options.format == "markdown" else "simple"
    inputs = [path for path in (options.source, options.curve) if path is not None]
    show(where, as_document(found), lambda: as_text(found, form), inputs)


command = Command(
    "predict",
    options=PredictOptions,
    run=predict,
    everyday=(
        "source",
        "model",
        "rate",
        "batch",
        "gradients",
        "network",
        "within",
        "ranks",
        "per_host",
        "until",
        "what_if",
        "json",
    ),
    params=[
        click.Argument(["source"], required=False, metavar="[PROFILE|RUN]"),
        Option(["--model"], metavar="NAME", help="A model by name: resnet-50, vgg-16, bert-large, …"),
        Option(["--rate"], type=float, metavar="N", help="Samples per second of one rank."),
        Option(["--batch"], type=float, metavar="N", help="Samples of a step of one rank."),
        Option(["--gradients"], type=float, metavar="N", help="Bytes of all gradients (float32)."),
        Option(
            ["--network"],
            metavar="NAME",
            help="Between hosts: 1gbe-tcp, 100gbe-roce, hdr-infiniband, edr-ipoib, … "
            "Default: 25gbe-tcp, with the bandwidth of measured points.",
        ),
        Option(
            ["--within"],
            default="pcie",
            show_default=True,
            metavar="NAME",
            help="Within a host: pcie, nvlink, nvswitch, shared-memory.",
        ),
        Option(["--ports"], type=int, default=1, show_default=True, metavar="N", help="Ports of each host."),
        Option(
            ["--curve"],
            metavar="FILE",
            help="As measured: a run of bench p2p or allreduce, or lines of bytes and seconds of a message.",
        ),
        Option(["--ranks"], metavar="N,N,…", help="Sizes. Default: one rank, one host, two, four, …"),
        Option(
            ["--per-host"], type=int, metavar="N", help="Ranks on each host. Default: as measured, else 8."
        ),
        Option(
            ["--algorithm"],
            default="hierarchical",
            show_default=True,
            type=click.Choice(ALGORITHMS),
            help="How gradients are summed; engine: Ringleader's, in the memory of CPUs.",
        ),
        Option(
            ["--servers"],
            type=int,
            default=0,
            metavar="N",
            help="Parameter servers. Default: one on each host.",
        ),
        Option(["--servers-apart"], is_flag=True, help="Parameter servers have hosts of their own."),
        Option(
            ["--wire"],
            default="fp32",
            show_default=True,
            type=click.Choice(tuple(WIRE_BYTES)),
            help="Type of the numbers that travel.",
        ),
        Option(
            ["--straggler"],
            type=float,
            default=STRAGGLER,
            show_default=True,
            metavar="PART",
            help="Standard deviation of a rank's step, in parts of it.",
        ),
        Option(
            ["--fixed"],
            type=float,
            default=0.0,
            metavar="SECONDS",
            help="What each update costs on several ranks.",
        ),
        Option(
            ["--micro-steps"],
            type=int,
            default=1,
            show_default=True,
            metavar="N",
            help="Backward passes of an update.",
        ),
        Option(["--no-overlap"], is_flag=True, help="The exchange begins after backward."),
        Option(["--until"], type=float, metavar="PART", help="At which size efficiency falls under it: 0.9."),
        Option(["--what-if"], multiple=True, metavar="NAME", help="Another network to compare with."),
        Option(
            ["--from-specifications"],
            is_flag=True,
            help="Also sizes beyond four times the largest measured one, from stated numbers.",
        ),
        Option(
            ["--format"],
            default="table",
            show_default=True,
            type=click.Choice(("table", "markdown", "json")),
            help="How to print it.",
        ),
        *JSON_OPTIONS,
    ],
    help="""Predict step time, rate and efficiency of more ranks, or of another network.

    From a profile of one rank (TOML or JSON), a run that `ringleader scale` or `ringleader bench train` kept,
    or --model with --rate and --batch. Every number says whether it is fitted to measured points or from
    specifications.
    """,
)
