"""Trains with random sequences of what scripts do between wrap and step, and compares with plain PyTorch.

    python tests/campaigns/sequences.py --seeds 0 2000        sequences of these seeds
    python tests/campaigns/sequences.py --seed 17             one, with its smallest form where it fails
    python tests/campaigns/sequences.py --sequence '{…}'      one that a failure has printed

Each sequence runs on living ranks (2 or 3, on one host or on several) and, with the same code, on replicas in
plain PyTorch: see `tests/sequences`. A failing one is made smaller and printed. The exit code is 1 where one
failed.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.collectives.sequence_ranks import SequenceRanks
from tests.rank_pool import RankPools
from tests.sequences.generator import draw
from tests.sequences.judge import Trials


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 2000), metavar=("FIRST", "END"))
    parser.add_argument("--seed", type=int)
    parser.add_argument("--sequence", help="as JSON")
    parser.add_argument("--no-shrink", action="store_true")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        pools = RankPools(Path(place))
        ranks = SequenceRanks(Path(place), pools.environ)
        trials = Trials(ranks.answers)
        began = time.monotonic()
        try:
            if words.sequence:
                why = trials.failure(json.loads(words.sequence))
                print(why or "passed")
                return int(why is not None)
            if words.seed is not None:
                print(json.dumps(draw(words.seed)))
                words.seeds = (words.seed, words.seed + 1)
            outcome = trials.run(range(*words.seeds), shrink=not words.no_shrink)
        finally:
            ranks.kill()
            pools.close()
    count = words.seeds[1] - words.seeds[0]
    print(f"{count} sequences in {time.monotonic() - began:.0f} s: {len(outcome.failures)} failed")
    return int(bool(outcome.failures))


if __name__ == "__main__":
    sys.exit(main())
