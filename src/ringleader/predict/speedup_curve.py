"""What a scaling run lets us expect at its own sizes and up to four times its largest: a curve. Pure."""

from __future__ import annotations

from dataclasses import replace

from ringleader.errors import RequestError
from ringleader.measurements.prediction_curve import PredictedSize, PredictionCurve
from ringleader.predict.fitting import FARTHEST, UNKNOWN_NETWORK, Fit, expected_efficiency, fit, interval
from ringleader.predict.measured_job import MeasuredJob, from_run
from ringleader.predict.networks import BETWEEN, WITHIN, Network
from ringleader.predict.step_model import Setup, predict
from ringleader.scaling import Run

UNKNOWN_BYTES = 100e6
"""Gradients of a run that does not tell their size. Only bytes over bandwidth count, and those are fitted."""


def speedup_curve(run: Run) -> PredictionCurve:
    """Return the predicted speed-ups of a run, or the reason why there are none.

    The run does not say which network it had. So it is as fast as its points tell and nothing else, and
    several hosts are not predicted from one.
    """
    if run.baseline != "1x1":
        return PredictionCurve(reason="predictions are against one rank; the run has another baseline")
    try:
        job = from_run(run, run.name, size=UNKNOWN_BYTES, batch=1.0, layers_of=None)
    except RequestError as error:
        return PredictionCurve(reason="; ".join(fault.what for fault in error.faults))
    if len(job.points) < 3:
        return PredictionCurve(reason="one rank and at least two larger sizes are needed")
    if any(point.ranks % point.per_host for point in job.points):
        return PredictionCurve(reason="the hosts do not have equally many ranks")
    setup = Setup(
        network=Network(name="not known", between=BETWEEN["25gbe-tcp"], within=WITHIN["pcie"]),
        per_host=job.per_host,
        sharing=job.sharing,
    )
    fitted = fit(job.profile, setup, job.points, uncertainty=UNKNOWN_NETWORK)
    sizes = tuple(_size(job, fitted, point.ranks, point.per_host) for point in job.points if point.ranks > 1)
    farther, reason = _farther(run, job)
    sizes += tuple(_size(job, fitted, hosts * job.per_host, job.per_host) for hosts in farther)
    return PredictionCurve(sizes=tuple(sorted(sizes, key=lambda size: size.ranks)), reason=reason)


def _farther(run: Run, job: MeasuredJob) -> tuple[list[int], str]:
    """Return numbers of hosts beyond the measured ones, else why there are none."""
    hosts = max(point.ranks // point.per_host for point in job.points)
    if hosts == 1:
        return [], "nothing was measured between hosts"
    if run.context.one_machine:
        return [], "all hosts share one machine, so more of them would tell nothing of a cluster"
    return [hosts * times for times in (2, FARTHEST)], ""


def _size(job: MeasuredJob, fitted: Fit, ranks: int, per_host: int) -> PredictedSize:
    known = next((point for point in job.points if (point.ranks, point.per_host) == (ranks, per_host)), None)
    setup = replace(fitted.setup, per_host=per_host, sharing=known.sharing if known else job.sharing)
    efficiency = predict(job.profile, setup, ranks).efficiency
    expected = expected_efficiency(job.profile, replace(fitted, setup=setup), ranks)
    reach = interval(expected)[1] - expected.mean
    return PredictedSize(
        hosts=ranks // per_host,
        ranks=ranks,
        speedup=ranks * efficiency,
        low=ranks * max(0.0, efficiency - reach),
        high=ranks * (efficiency + reach),
        measured=known is not None,
    )
