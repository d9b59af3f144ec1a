#!/usr/bin/env bash
# make demo: a convolutional net learns handwritten digits on one rank and on two; a finding and a page come out.
# Under 3 minutes, 5 where ten processes want each core: sizes are measured once, on half of the epochs, then again
# until intervals are narrow or the time is over.
#   RINGLEADER_MNIST_DIR=DIR   real MNIST idx files instead of the digits that scikit-learn carries
set -euo pipefail
cd "$(dirname "$0")/.."
ringleader=.venv/bin/ringleader python=.venv/bin/python
data=()
[ -n "${RINGLEADER_MNIST_DIR:-}" ] && data=(--data-dir "$RINGLEADER_MNIST_DIR")

echo "\$ ringleader run -n 2 python examples/mnist.py ${data[*]}"
"$ringleader" run -n 2 --oversubscribe "$python" examples/mnist.py "${data[@]}"
echo
budget=$((SECONDS < 130 ? 140 - SECONDS : 10))
sizes=(--grid 1x1,1x2 --repeats 1 --budget "$budget" --in-step none --name demo --replace)
script=(examples/mnist.py --epochs 4 "${data[@]}")
echo "\$ ringleader scale ${sizes[*]} -- python ${script[*]}"
"$ringleader" scale "${sizes[@]}" --oversubscribe -- "$python" "${script[@]}"
echo
"$python" -c 'import json; print("Finding:", json.load(open("runs/demo/report.json"))["headline"])'
