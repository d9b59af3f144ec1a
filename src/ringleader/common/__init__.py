"""The import path of scripts, as in ``horovod.common.util``: another name of `ringleader.adapters`.

No module lies here: what is imported below this name is the module of `ringleader.adapters` itself.
"""

import importlib
import sys

from ringleader.alias import AliasFinder

sys.meta_path.insert(0, AliasFinder({__name__: "ringleader.adapters"}))
sys.modules[__name__] = importlib.import_module("ringleader.adapters")
