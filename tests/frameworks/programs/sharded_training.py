"""Trains with ``shard=True`` and without, to the same parameters: `tests/collectives` has the program."""

import runpy
import sys
from pathlib import Path

program = Path(__file__).parents[2] / "collectives" / "programs" / "sharding.py"
sys.path.insert(0, str(program.parent))
runpy.run_path(str(program), run_name="__main__")
