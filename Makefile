# Everything a newcomer needs is two commands: `make demo` and `make test`. Both set themselves up.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
# A separate environment, of a Python that MXNet knows.
MXNET := .venv-mxnet
MXNET_PYTHON ?= $(shell command -v python3.11 || echo $(PYTHON))
BIN := $(VENV)/bin
# With a CPU wheel of this version at hand pip takes it; elsewhere pip may bring the CUDA build, which works too.
TORCH ?= torch==2.13.0
# The build without CUDA; elsewhere also `make TENSORFLOW=tensorflow`.
TENSORFLOW ?= tensorflow-cpu==2.21.0
PYTEST := $(BIN)/pytest -q
SHORT := -m "not long"
LONG := -m "long and not exhaustive"
# Tests that mostly wait share a stage's time: two at once, those of a file in one process.
PAIR := -n 2 --dist loadfile
# Beside another stage one process is as fast, and collects eight thousand tests once.
UNIT_WORKERS := -n 2
STAGE := scripts/stage
# One queue of stages and two workers: make begins the next one where one ends, so the longest come first.
QUEUE := $(MAKE) --no-print-directory --jobs 2 --output-sync=line QUEUED=1
export OMP_NUM_THREADS ?= 1

.PHONY: help setup system demo needs test test-all test-long test-mutation test-quick test-images test-rdma lint types imports \
	unit mpi collectives lab mxnet pictures \
	bench bench-frameworks bench-controller bench-control-plane gpu docs release test-frameworks test-libraries bench-predict bench-predict-lab campaign-inputs campaign-faults test-faults campaign-weights clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(VENV)/.ready: pyproject.toml Makefile scripts/venv
	@scripts/venv "$(PYTHON)" $(VENV)
	@echo "installing Ringleader, PyTorch and the tools (a few minutes the first time)"
	@$(BIN)/pip install --quiet --disable-pip-version-check "$(TORCH)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[torch,report,kubernetes,examples,dev]"
	@touch $@

$(VENV)/.frameworks: $(VENV)/.ready
	@echo "installing TensorFlow, Keras and JAX, which the tests need"
	@$(BIN)/pip install --quiet --disable-pip-version-check "$(TENSORFLOW)" --editable ".[tf-keras,keras,jax]"
	@touch $@

$(VENV)/.libraries: $(VENV)/.ready
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[libraries]"
	@touch $@

$(MXNET)/.ready: pyproject.toml Makefile scripts/mxnet_venv
	@echo "installing MXNet, for its tests"
	@scripts/mxnet_venv "$(MXNET_PYTHON)" $(MXNET)
	@touch $@

# Intel MPI's wheel brings its own bin/mpirun, so it lives apart from the embedded Open MPI.
.mpi/intel/.ready: Makefile | $(VENV)/.ready
	@mkdir -p .mpi
	@$(BIN)/pip install --quiet --disable-pip-version-check --ignore-installed --prefix .mpi/intel "impi-rt>=2021.14,<2022"
	@touch $@

# The tests find it behind the machine's own PATH.
.tools/kubectl/.ready: Makefile scripts/kubectl.py | $(VENV)/.ready
	@mkdir -p .tools/kubectl
	@$(BIN)/python scripts/kubectl.py .tools/kubectl
	@touch $@

setup: $(VENV)/.ready  ## a virtual environment with Ringleader and what it needs

system:  ## what tests and lab need from the system (as root with apt-get)
	@mkdir -p build
	@scripts/system

demo: setup  ## train a real model on 1 and 2 ranks; a table and a page come out
	@examples/demo.sh

test: needs  ## everything but what takes long, in about 10 minutes on two cores
	@$(STAGE) --begin
	@$(QUEUE) UNIT_WORKERS= $(TEST:%=stage-%)
	@$(STAGE) --summary

mxnet: $(MXNET)/.ready  ## its own environment with MXNet, which its tests need

# Without a Python 3.11 MXNet's tests are skipped, and say so.
test-all: needs  ## `make test`, then what takes long: about an hour more
	-@$(MAKE) --no-print-directory mxnet
	@$(STAGE) --begin
	@$(QUEUE) UNIT_WORKERS= $(TEST:%=stage-%)
	@$(QUEUE) $(TEST_LONG:%=stage-%)
	@$(MAKE) --no-print-directory $(CAMPAIGNS:%=stage-%)
	@$(STAGE) --summary

# Where the time is limited (STAGES_BEGIN_WITHIN), another third of it comes first on each of three days.
DAY ?= $(shell expr $$(date +%s) / 86400)
test-long: needs  ## what `make test` leaves out
	-@$(MAKE) --no-print-directory mxnet
	@$(STAGE) --begin
	@if [ $$(expr $(DAY) % 3) = 0 ]; then $(MAKE) --no-print-directory $(CAMPAIGNS:%=stage-%); fi
	@$(QUEUE) $$($(STAGE) --rotate $(DAY) $(TEST_LONG:%=stage-%))
	@if [ $$(expr $(DAY) % 3) != 0 ]; then $(MAKE) --no-print-directory $(CAMPAIGNS:%=stage-%); fi
	@$(STAGE) --summary

test-quick: setup $(VENV)/.frameworks  ## what you run all day: lint, types, imports, and every test that starts nothing
	@$(STAGE) --begin
	@$(QUEUE) $(QUICK:%=stage-%)
	@$(STAGE) --summary

needs: setup $(VENV)/.frameworks
	@mkdir -p build
	@$(MAKE) --no-print-directory system .mpi/intel/.ready .tools/kubectl/.ready

# Stages, the longest first; of the long ones in each third, which is what --rotate begins with.
QUICK := unit types imports lint format
TEST := collectives mpi ends unit ssh types kube lab processes report examples frameworks controller docs site \
	imports lint format
TEST_LONG := long-sequences long-mpi long-contract long-ssh long-examples long-unit long-properties \
	long-keras long-proxies long-kube long-optimizer long-hosts long-collectives \
	long-tensorflow long-images long-failures long-ends long-frameworks long-lab
CAMPAIGNS := campaign-inputs campaign-faults campaign-elastic campaign-sharded campaign-two

COLLECTIVES := $(wildcard tests/collectives/test_*.py)
# Ranks that fail, leave or join: these start processes of their own.
ENDS := $(addprefix tests/collectives/test_,ranks.py consistency.py memory.py elastic_gpu.py elastic_training.py \
	launched.py proxy_failures.py)
CONTRACT := $(addprefix tests/collectives/test_,contract.py averages.py operations.py distributed.py fake_nccl.py)
OPTIMIZER := $(addprefix tests/collectives/test_,optimizer.py sharded.py)
FAILURES := $(addprefix tests/collectives/test_,proxy_failures.py elastic_training.py elastic_gpu.py)
PROXIES := tests/collectives/test_over_proxies.py
SEQUENCES := tests/collectives/test_sequences.py
HOSTS := tests/collectives/test_lab_engine.py
# To collect all the others would take longer than to run these.
PROCESSES := $(shell grep -rl 'mark\.process' --include='test_*.py' tests/unit)

RUN_lint := $(BIN)/ruff check
RUN_format := $(BIN)/ruff format --check
RUN_imports := $(BIN)/lint-imports --no-logo
RUN_types := $(BIN)/mypy
RUN_unit := $(PYTEST) $(UNIT_WORKERS) -m "not process and not long" tests/unit
RUN_processes := $(PYTEST) $(PAIR) -m "process and not long" $(PROCESSES)
RUN_collectives := $(PYTEST) $(SHORT) $(filter-out $(ENDS),$(COLLECTIVES))
RUN_ends := $(PYTEST) $(SHORT) $(PAIR) $(ENDS)
RUN_mpi := $(PYTEST) $(SHORT) -n 3 --dist loadfile tests/mpi
RUN_kube := $(PYTEST) $(SHORT) $(PAIR) tests/kube
RUN_controller := $(PYTEST) $(SHORT) $(PAIR) tests/controller
RUN_ssh := $(PYTEST) $(SHORT) $(PAIR) tests/ssh tests/slurm
RUN_examples := $(PYTEST) $(SHORT) tests/examples
RUN_lab := $(PYTEST) $(SHORT) tests/lab
RUN_report := $(PYTEST) $(SHORT) tests/report
RUN_frameworks := $(PYTEST) $(SHORT) tests/frameworks
RUN_docs := $(PYTEST) $(SHORT) tests/docs
# Without --quiet, which drops warnings before --strict counts them.
RUN_site := env NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

RUN_long-mpi := $(PYTEST) $(LONG) $(PAIR) tests/mpi
RUN_long-contract := $(PYTEST) $(LONG) $(CONTRACT)
RUN_long-optimizer := $(PYTEST) $(LONG) $(OPTIMIZER)
RUN_long-proxies := $(PYTEST) $(LONG) $(PROXIES)
RUN_long-failures := $(PYTEST) $(LONG) $(FAILURES)
RUN_long-ends := $(PYTEST) $(LONG) $(filter-out $(FAILURES),$(ENDS))
RUN_long-sequences := $(PYTEST) $(LONG) $(SEQUENCES)
RUN_long-hosts := $(PYTEST) $(LONG) $(HOSTS)
RUN_long-collectives := $(PYTEST) $(LONG) \
	$(filter-out $(CONTRACT) $(OPTIMIZER) $(PROXIES) $(FAILURES) $(ENDS) $(SEQUENCES) $(HOSTS),$(COLLECTIVES))
RUN_long-keras := $(PYTEST) $(LONG) -k keras tests/frameworks
RUN_long-tensorflow := $(PYTEST) $(LONG) -k "tensorflow and not keras" tests/frameworks
RUN_long-frameworks := $(PYTEST) $(LONG) -k "not tensorflow and not keras" tests/frameworks
RUN_long-lab := $(PYTEST) $(LONG) tests/lab
RUN_long-kube := $(PYTEST) $(LONG) $(PAIR) tests/kube tests/controller
RUN_long-ssh := $(PYTEST) $(LONG) $(PAIR) tests/ssh tests/slurm tests/report
RUN_long-images := $(PYTEST) $(LONG) tests/images
RUN_long-examples := $(PYTEST) $(LONG) tests/examples
RUN_long-unit := $(PYTEST) $(LONG) tests/unit tests/docs
RUN_long-properties := env HYPOTHESIS_PROFILE=many $(PYTEST) -n 2 -m "hypothesis and not process" tests/unit \
	tests/examples/test_together.py

# Alone, and with twice the time that a quiet machine needs: who is named and what is left is judged here.
RUN_campaign-inputs := $(BIN)/python tests/campaigns/bad_input.py --sample 150
RUN_campaign-faults := $(BIN)/python tests/campaigns/faults.py --trials 40 --time-factor 2
RUN_campaign-elastic := $(BIN)/python tests/campaigns/elastic.py ranks hosts stopped returns --kills 18 --trials 1 \
	--stops 6 --sample
RUN_campaign-sharded := $(BIN)/python tests/campaigns/equal_weights.py --only sharded
RUN_campaign-two := $(BIN)/python tests/campaigns/elastic.py two --trials 1 --only "two ranks" --sample

STAGES := $(addprefix stage-,$(QUICK) $(filter-out $(QUICK),$(TEST)) $(TEST_LONG) $(CAMPAIGNS))
.PHONY: $(STAGES)
$(STAGES): stage-%:
	@$(STAGE) $* $(RUN_$*)
# The tests of labs look on the whole machine for what a lab left: they never run beside others that make namespaces.
ifdef QUEUED
stage-lab: | stage-ssh
stage-long-lab: | stage-long-ssh stage-long-images
endif

test-mutation: setup  ## changes of code that its unit tests must notice, against a stored floor; about 20 minutes
	@nice $(BIN)/python scripts/mutation.py $(WORDS)

lint: setup
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: setup
	@$(BIN)/mypy

imports: setup  ## imports go down only; pure modules stay pure
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

unit: setup $(VENV)/.frameworks
	@$(PYTEST) -n 2 tests/unit

mpi: setup system .mpi/intel/.ready
	@$(PYTEST) tests/mpi

collectives: setup
	@$(PYTEST) tests/collectives

lab: setup system
	@$(PYTEST) tests/lab

test-images: setup system  ## a real image, built without any registry, and ranks that train on hosts made of it
	@$(PYTEST) tests/images

test-rdma: setup system  ## doctor, run and bench on real verbs: emulated machines with Soft-RoCE. As root, about 20 minutes
	@scripts/rdma_kernel build/rdma
	@$(PYTEST) tests/rdma

bench: setup system  ## speed against peers in the same run, and a table of required and reached: at most 30 minutes, as root
	@$(BIN)/python benchmarks/run.py

bench-frameworks: setup $(VENV)/.frameworks  ## the same of JAX, Keras, TensorFlow and MXNet (`make mxnet`)
	@$(BIN)/python benchmarks/run.py --frameworks

# No setup: it runs with any Python that has torch with CUDA, mpi4py and an MPI library.
gpu:  ## what needs a GPU, one is enough: operations, training, failures, steps against plain torch, in 5 minutes
	@$$([ -x $(BIN)/python ] && echo $(BIN)/python || echo $(PYTHON)) benchmarks/gpu.py $(WORDS)

bench-predict: setup  ## predictions compared with published tables: one half fitted, the other blind
	@$(BIN)/python benchmarks/predict.py

bench-predict-lab: setup system  ## steps in labs at three rates, predicted and measured; as root, on an idle machine
	@$(BIN)/python benchmarks/predict_lab.py

bench-controller: setup  ## the MPIJob operator: speed and memory; WORDS='--kubeconfig FILE' for a server of yours
	@$(BIN)/python benchmarks/controller.py $(WORDS)

bench-control-plane: setup  ## the launcher with 64, 256 and 1,024 hosts that are connections: seconds and memory of each phase
	@$(BIN)/python benchmarks/control_plane.py $(WORDS)

docs: setup  ## the site of the documentation, in build/site: a broken link or a missing page fails
	@$(RUN_site)

release: setup  ## sdist, wheel, list of components and checksums in dist/, tried in a new environment; publishes nothing
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/release

pictures: setup  ## the pictures of the README, from docs/images/scaling.json; a Chromium takes the screenshot
	@$(BIN)/python scripts/pictures.py

campaign-inputs: setup  ## every command with bad input and in hostile surroundings; as root. WORDS='--sample 300'
	@$(BIN)/python tests/campaigns/bad_input.py $(WORDS)

campaign-faults: setup system  ## break running jobs at random, here and in a lab, and judge how they end; as root. WORDS='--trials 200'
	@$(BIN)/python tests/campaigns/faults.py $(WORDS)

# 1,000 ranks that fail, half of them of one job; each MPI of the system takes the small round, too.
ELASTIC := $(BIN)/python tests/campaigns/elastic.py
test-faults: setup system  ## elastic jobs: kill ranks in every phase, break hosts and links, change hosts; as root, about an hour
	@$(STAGE) --begin
	@$(STAGE) ranks $(ELASTIC) ranks --kills 500 $(WORDS)
	@$(STAGE) ranks-2 $(ELASTIC) ranks --kills 200 --seed 2 $(WORDS)
	@$(STAGE) ranks-lab $(ELASTIC) ranks --layout lab --kills 200 $(WORDS)
	@$(STAGE) hosts $(ELASTIC) hosts --trials 2 $(WORDS)
	@$(STAGE) changes $(ELASTIC) changes --trials 10 $(WORDS)
	@$(STAGE) two $(ELASTIC) two --trials 2 $(WORDS)
	@$(STAGE) stopped $(ELASTIC) stopped --stops 100 $(WORDS)
	@for mpi in mpich openmpi4; do \
		$(STAGE) ranks-$$mpi $(ELASTIC) ranks --kills 54 --mpi $$mpi $(WORDS); \
		$(STAGE) hosts-$$mpi $(ELASTIC) hosts --sample --trials 1 --mpi $$mpi $(WORDS); \
	done
	@$(STAGE) --summary

test-frameworks: needs mxnet  ## every test of TensorFlow, Keras, JAX and MXNet: about an hour
	@$(PYTEST) tests/frameworks

test-libraries: $(VENV)/.libraries  ## DDP, FSDP2, Accelerate, Lightning and Transformers on 2 ranks: installs them, 2 minutes
	@$(PYTEST) tests/examples/test_pytorch_libraries.py

campaign-weights: needs mxnet  ## 200 steps with each framework on 1-4 ranks and in a lab: equal weights. As root
	@$(BIN)/python tests/campaigns/equal_weights.py $(WORDS)

clean:  ## remove what was built here
	rm -rf $(VENV) $(MXNET) .mpi .tools build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
