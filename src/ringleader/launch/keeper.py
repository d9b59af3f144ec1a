"""The keeper's entry: ``python -I -S …/ringleader/launch/keeper.py``, started by the launcher.

Like ``ranks/agent.py`` it is run by path and only finds its siblings, which come from the byte-code cache.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Put our own package behind the standard library and hand over."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    if root not in sys.path:
        sys.path.append(root)
    from ringleader.launch import keeping

    keeping.main()


if __name__ == "__main__":
    main()
