# `make quickstart` and `make test` need no setup: each target creates the environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help quickstart test test-results test-all test-real test-lowest soak sanitize lint clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Install the versions of constraints.txt, which the tests run with.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[test,lint]"
	touch $(READY)

QUICK := outputs/quickstart

# A small model is as fast on one thread, and far faster where another process is busy (docs/performance.md).
quickstart: export OMP_NUM_THREADS ?= 1
quickstart: $(READY)  ## train a tagger on synthetic data and tag new sentences, in about two minutes
	rm -rf $(QUICK)
	$(BIN)/accelerate launch --config_file configuration/accelerate/cpu.yaml \
		run_scripts/run_ner.py configuration/recipes/quickstart.yaml
	$(BIN)/python run_scripts/run_predict.py $(QUICK)/model --file configuration/quickstart/sentences.txt
	@echo
	@echo "The model is in $(QUICK)/model, its card is $(QUICK)/model/README.md."

# The slowest tests end the log: a test that is among them needs a reason.
TEST := pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 40
RESULTS := tests/experiments tests/golden

test: $(READY)  ## the fast tests of the package, as CI runs them
	OMP_NUM_THREADS=1 $(BIN)/$(TEST) -m "not slow" $(RESULTS:%=--ignore %)

test-results: $(READY)  ## the fast tests of stored results, pages and golden runs, as CI runs them
	OMP_NUM_THREADS=1 $(BIN)/$(TEST) -m "not slow" $(RESULTS)

test-all: $(READY)  ## all tests, including slow ones
	OMP_NUM_THREADS=1 $(BIN)/$(TEST)

APT := apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends

# Pages are tested in a browser, with packages of npm. Each is installed by itself: Debian's npm conflicts with another
# nodejs, which has its own. Where one cannot be installed, its tests fail and name it.
test-real: $(READY)  ## spaCy, Ray, gradio, uvicorn, PEFT, scikit-learn and skops as their users run them
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[real]"
	-command -v chromedriver || { $(APT) chromium-driver; }
	-command -v npm || { $(APT) npm; }
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/real --durations 0 --durations-min 5
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/test_estimators.py -k "checks_of_scikit_learn and not array_api"

test-lowest:  ## the fast tests on the lowest versions of pyproject.toml, in an environment beside .venv
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check --constraint tests/lowest.txt --editable ".[test]"
	OMP_NUM_THREADS=1 .venv-lowest/bin/$(TEST) -m "not slow"

MINUTES ?= 30

soak: $(READY)  ## mutated files, random strings and kills, for 30 minutes: make soak [MINUTES=5] [SEED=...] [KINDS=kill]
	PYTHONPATH=tests:experiments OMP_NUM_THREADS=1 $(BIN)/python experiments/soak.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(KINDS),--kinds $(KINDS))

SANITIZED := build/sanitized
SANITIZE := $(CXX) -std=c++17 -O1 -g -fopenmp -Wno-psabi -fsanitize=address,undefined -fno-sanitize-recover=all \
	tests/sanitize.cpp -o $(SANITIZED)
# The levels of kernels/cpu_library.py: all are compiled, and a program runs where the processor has its instructions.
ifneq ($(filter x86_64 amd64,$(shell uname -m)),)
LEVELS := "" "-march=x86-64-v3" "-march=x86-64-v4" "-march=x86-64-v4 -mavx512bf16" \
	"-march=x86-64-v4 -mavx512bf16 -mamx-tile -mamx-bf16" "-DEMULATED"
else
LEVELS := ""
endif

sanitize:  ## kernels/cpu.cpp under AddressSanitizer and UBSan: make sanitize [SHAPES=300] [SEED=1]
	mkdir -p build
	for level in $(LEVELS); do \
		echo "$(SANITIZE) $$level" && $(SANITIZE) $$level && OMP_WAIT_POLICY=passive $(SANITIZED) $(or $(SHAPES),300) $(or $(SEED),1) || exit 1; \
	done

lint: $(READY)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:  ## remove the environment, outputs and caches
	rm -rf $(VENV) .venv-lowest outputs build dist .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
