"""Serve a fake cluster: ``python -m tests.kube.fake``.

Its first line says where it is; it ends with its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading

from tests.kube.fake.access import ADMIN_TOKEN
from tests.kube.fake.cluster import FakeCluster
from tests.kube.fake.features import Features
from tests.kube.fake.simulation_settings import StandInOptions


def main() -> None:
    """Read the options, serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m tests.kube.fake", description="Serve a fake cluster.")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--window", type=int, default=20_000, help="events that a watch may be behind")
    parser.add_argument("--stand-in", action="store_true", help="a Job controller and nodes")
    parser.add_argument("--driven", action="store_true", help="Pods stay Pending")
    parser.add_argument("--start-seconds", type=float, default=0.0, help="from a Pod's creation to its start")
    parser.add_argument("--documents", default="", help="a file of JSON objects, one a line, to create first")
    parser.add_argument("--without", action="append", default=[], help="a feature to take out (features.py)")
    options = parser.parse_args()
    stand_in = None
    if options.stand_in:
        kubelet = "driven" if options.driven else "automatic"
        stand_in = StandInOptions(kubelet=kubelet, start_seconds=options.start_seconds)
    features = Features().without(*options.without)
    cluster = FakeCluster(features=features, port=options.port, window=options.window, stand_in=stand_in)
    asyncio.run(_serve(cluster, options.documents))


async def _serve(cluster: FakeCluster, documents: str) -> None:
    started = threading.Event()
    serving = asyncio.ensure_future(cluster.serve(started))
    while not started.is_set() and not serving.done():
        await asyncio.sleep(0.01)
    if serving.done():
        await serving
    loop = asyncio.get_running_loop()
    if documents:
        await loop.run_in_executor(None, _create, cluster, documents)
    print(json.dumps({"url": cluster.url, "token": ADMIN_TOKEN}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    cluster.stop()
    await serving


def _create(cluster: FakeCluster, path: str) -> None:
    with open(path, encoding="utf-8") as file:
        for line in file:
            cluster.create(json.loads(line))


if __name__ == "__main__":
    main()
