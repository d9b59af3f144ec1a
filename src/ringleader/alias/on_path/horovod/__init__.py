"""Found through PYTHONPATH, this package makes ``horovod`` stand for ``ringleader`` and steps aside."""

import sys

del sys.modules[__name__]

import ringleader.alias  # noqa: E402

ringleader.alias.install()
# The import system hands out what it finds here when this file has run.
sys.modules[__name__] = ringleader
