"""Serve a fake cluster: ``python -m tests.kube.fake``.

Its first line says where it is; it ends with its standard input.
"""

import argparse
import json
import sys
from pathlib import Path

from tests.kube.fake import FakeCluster
from tests.kube.fake.access import ADMIN_TOKEN

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.kube.fake", description="Serve a fake cluster.")
    parser.add_argument("--window", type=int, default=20_000, help="events that a watch may be behind")
    parser.add_argument("--documents", type=Path, required=True, help="JSON objects, one a line, to create")
    options = parser.parse_args()
    with FakeCluster(window=options.window) as cluster:
        for line in options.documents.read_text(encoding="utf-8").splitlines():
            cluster.create(json.loads(line))
        print(json.dumps({"url": cluster.url, "token": ADMIN_TOKEN}), flush=True)
        sys.stdin.read()
