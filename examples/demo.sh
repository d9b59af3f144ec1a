#!/usr/bin/env bash
# make demo: a convolutional net learns handwritten digits on one rank and on two; a finding and a page come out.
# It takes under 3 minutes: sizes are repeated until their intervals are narrow, or for 110 seconds.
#   RINGLEADER_MNIST_DIR=DIR   real MNIST idx files instead of the digits that scikit-learn carries
set -euo pipefail
cd "$(dirname "$0")/.."
ringleader=.venv/bin/ringleader python=.venv/bin/python
data=()
[ -n "${RINGLEADER_MNIST_DIR:-}" ] && data=(--data-dir "$RINGLEADER_MNIST_DIR")
sizes=(--grid 1x1,1x2 --repeats 2 --budget 110 --in-step none --name demo --replace)

echo "\$ ringleader run -n 2 python examples/mnist.py ${data[*]}"
"$ringleader" run -n 2 --oversubscribe "$python" examples/mnist.py "${data[@]}"
echo
echo "\$ ringleader scale ${sizes[*]} -- python examples/mnist.py ${data[*]}"
"$ringleader" scale "${sizes[@]}" --oversubscribe -- "$python" examples/mnist.py "${data[@]}"
echo
"$python" -c 'import json; print("Finding:", json.load(open("runs/demo/report.json"))["headline"])'
