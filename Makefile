# Everything a newcomer needs is two commands: `make demo` and `make test`. Both set themselves up.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# With a CPU wheel of this version at hand pip takes it; elsewhere pip may bring the CUDA build, which works too.
TORCH ?= torch==2.13.0
PYTEST := $(BIN)/pytest -q
# What starts processes, hosts and servers is run once more where it fails, and said to have been (RERUN): a
# busy machine can end any deadline. What fails twice has failed. Pure tests get no second chance.
SYSTEM_PYTEST := $(PYTEST) --reruns 1 -rR
STAGE := scripts/stage
export OMP_NUM_THREADS ?= 1

.PHONY: help setup system demo test test-quick test-images lint types floors unit ssh mpi collectives examples lab browser bench bench-controller campaign-inputs campaign-faults clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(VENV)/.ready: pyproject.toml Makefile scripts/venv
	@scripts/venv $(PYTHON) $(VENV)
	@echo "installing Ringleader, PyTorch and the tools (a few minutes the first time)"
	@$(BIN)/pip install --quiet --disable-pip-version-check "$(TORCH)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[torch,report,kubernetes,examples,dev]"
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

test: setup  ## everything: lint, types, floors, unit, MPI, lab, images, examples, browser
	@$(STAGE) --begin
	@$(STAGE) system $(MAKE) --no-print-directory system
	@$(STAGE) mpi-intel $(MAKE) --no-print-directory .mpi/intel/.ready
	@$(STAGE) kubectl $(MAKE) --no-print-directory .tools/kubectl/.ready
	@$(STAGE) lint $(MAKE) --no-print-directory lint
	@$(STAGE) types $(MAKE) --no-print-directory types
	@$(STAGE) floors $(MAKE) --no-print-directory floors
	@$(STAGE) unit $(PYTEST) tests/unit
	@$(STAGE) ssh $(SYSTEM_PYTEST) tests/ssh
	@$(STAGE) mpi $(SYSTEM_PYTEST) tests/mpi
	@$(STAGE) collectives $(SYSTEM_PYTEST) tests/collectives
	@$(STAGE) examples $(SYSTEM_PYTEST) tests/examples
	@$(STAGE) lab $(SYSTEM_PYTEST) tests/lab
	@$(STAGE) images $(SYSTEM_PYTEST) tests/images
	@$(STAGE) report $(SYSTEM_PYTEST) tests/report
	@$(STAGE) kube $(SYSTEM_PYTEST) tests/kube
	@$(STAGE) controller $(SYSTEM_PYTEST) tests/controller
	@$(STAGE) docs $(PYTEST) tests/docs
	@$(STAGE) --summary

test-quick: setup lint types floors  ## what you run all day: lint, types, floors, unit tests
	@$(PYTEST) tests/unit

lint: setup
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: setup
	@$(BIN)/mypy

floors: setup  ## imports go down only; pure rooms stay pure
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

unit: setup
	@$(PYTEST) tests/unit

mpi: setup system .mpi/intel/.ready
	@$(PYTEST) tests/mpi

collectives: setup
	@$(PYTEST) tests/collectives

lab: setup system
	@$(PYTEST) tests/lab

test-images: setup system  ## a real image, built without any registry, and ranks that train on hosts made of it
	@$(PYTEST) tests/images

bench: setup system  ## every benchmark: ratios against peers in the same run
	@benchmarks/all.sh

bench-controller: setup  ## the MPIJob operator: speed and memory; WORDS='--kubeconfig FILE' for a server of yours
	@$(BIN)/python benchmarks/controller.py $(WORDS)

campaign-inputs: setup  ## every command with bad input and in hostile surroundings; as root. WORDS='--sample 300'
	@$(BIN)/python tests/campaigns/bad_input.py $(WORDS)

campaign-faults: setup system  ## break running jobs at random, here and in a lab, and judge how they end; as root. WORDS='--trials 200'
	@$(BIN)/python tests/campaigns/faults.py $(WORDS)

clean:  ## remove what was built here
	rm -rf $(VENV) .mpi .tools build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
