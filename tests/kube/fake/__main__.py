"""Serve a fake cluster: ``python -m tests.kube.fake``.

Its first line says where it is; it ends with its standard input.
"""

import argparse
import json
import sys

from tests.kube.fake import FakeCluster
from tests.kube.fake.access import ADMIN_TOKEN


def main() -> None:
    """Read the options, serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m tests.kube.fake", description="Serve a fake cluster.")
    parser.add_argument("--window", type=int, default=20_000, help="events that a watch may be behind")
    parser.add_argument("--documents", default="", help="a file of JSON objects, one a line, to create first")
    options = parser.parse_args()
    with FakeCluster(window=options.window) as cluster:
        if options.documents:
            with open(options.documents, encoding="utf-8") as file:
                for line in file:
                    cluster.create(json.loads(line))
        print(json.dumps({"url": cluster.url, "token": ADMIN_TOKEN}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
