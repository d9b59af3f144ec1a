"""The host agent's entry: ``python -I -S …/ringleader/ranks/host_agent.py``, one process per host.

The launcher starts it over ssh, or as a child on its own machine, and writes one line of JSON to its standard
input. It is run by path, with no site-packages, as rank agents are (``agent.py``). When it is connected it
detaches itself, so that whoever started it sees exit code 0; else it says why on standard error.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Put our own package behind the standard library and hand over."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    if root not in sys.path:
        sys.path.append(root)
    from ringleader.ranks import host_agent_start

    code = host_agent_start.run(os.environ)
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
