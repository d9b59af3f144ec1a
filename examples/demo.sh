#!/usr/bin/env bash
# make demo: a convolutional net learns handwritten digits on one rank and on two; a table and a page come out.
#   RINGLEADER_MNIST_DIR=DIR   real MNIST idx files instead of the digits that scikit-learn carries
set -euo pipefail
cd "$(dirname "$0")/.."
ringleader=.venv/bin/ringleader python=.venv/bin/python
data=()
[ -n "${RINGLEADER_MNIST_DIR:-}" ] && data=(--data-dir "$RINGLEADER_MNIST_DIR")

echo "\$ ringleader run -n 2 python examples/mnist.py ${data[*]}"
"$ringleader" run -n 2 --oversubscribe "$python" examples/mnist.py "${data[@]}"
echo
echo "\$ ringleader scale --grid 1x1,1x2 -- python examples/mnist.py ${data[*]}"
exec "$ringleader" scale --grid 1x1,1x2 --name demo --replace --oversubscribe -- "$python" examples/mnist.py "${data[@]}"
