"""The rank agent's entry: ``python -I -S …/ringleader/agents/rank_agent.py``, which mpirun starts per rank.

It is run by path, with no site-packages, so that it starts fast and imports nothing of the user's. This file
only finds its siblings; being the script it is compiled at every start, they come from the byte-code cache.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Put our own package behind the standard library and hand over."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    if root not in sys.path:
        sys.path.append(root)
    from ringleader.agents import rank_agent_guard

    def run_inner(outer: int, starter: int) -> int:
        from ringleader.agents import rank_agent_loop  # loaded in the inner process only

        return rank_agent_loop.run(outer, starter, os.environ)

    code = rank_agent_guard.run(os.environ, run_inner)
    sys.stderr.flush()
    os._exit(code)  # there is nothing to tidy up, and mpirun waits for our end


if __name__ == "__main__":
    main()
