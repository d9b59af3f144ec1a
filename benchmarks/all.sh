#!/usr/bin/env bash
# make bench: every benchmark in turn. The one over several hosts needs root for its lab, and says so where it can't.
set -uo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
"$python" -m compileall -q src/ringleader
failed=0
"$python" benchmarks/start.py || failed=1
"$python" benchmarks/step.py --pin || failed=1
"$python" benchmarks/keras_step.py --pin || failed=1
"$python" benchmarks/allreduce.py --pin || failed=1
"$python" benchmarks/jax_step.py --pin || failed=1
if [ -e .venv-mxnet/.ready ]; then
    .venv-mxnet/bin/python benchmarks/mxnet_step.py --pin || failed=1
else
    echo "the benchmark of MXNet needs its environment: make mxnet" >&2
fi
if [ -n "${TF_CNN_BENCHMARKS:-}" ]; then
    "$python" benchmarks/tf_cnn_benchmarks.py || failed=1
else
    echo "tf_cnn_benchmarks needs TF_CNN_BENCHMARKS, the directory of its checkout" >&2
fi
"$python" benchmarks/tensorflow_allreduce.py --pin || failed=1
"$python" benchmarks/tensorflow_keras_step.py --pin || failed=1
if [ "$(id -u)" = 0 ]; then
    .venv/bin/ringleader lab up --name bench --hosts 4 --slots 2 --bandwidth 8gbit --ssh-port 34 &&
        { "$python" benchmarks/start.py --lab bench || failed=1; } &&
        { "$python" benchmarks/hosts.py --lab bench --required 5 1.3 0 || failed=1; }
    .venv/bin/ringleader lab down --name bench
    .venv/bin/ringleader lab up --name slow --hosts 4 --slots 2 --bandwidth 1gbit --ssh-port 36 &&
        { "$python" benchmarks/hosts.py --lab slow --required 1 1 0.85 || failed=1; } &&
        { "$python" benchmarks/resnet.py --lab slow || failed=1; }
    .venv/bin/ringleader lab down --name slow
else
    echo "the benchmark over several hosts needs root for its lab" >&2
fi
exit "$failed"
