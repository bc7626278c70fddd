# Everything a newcomer needs: each target makes the environment it wants, then does its job.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo check test numeric fuzz lint format bench results docs clean

help:           ## Show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

# torch is installed first and by its exact pin: an open range would pull gigabytes of CUDA packages.
$(VENV)/base: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("gradpivot needs Python 3.11 or newer; run make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) --editable '.[figures]'
	@touch $@

$(VENV)/dev: $(VENV)/base
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/docs: $(VENV)/base
	$(PIP) --editable '.[docs]'
	@touch $@

demo: $(VENV)/base      ## Forget a digit, compare methods, write demo/report.html
	$(BIN)/gradpivot demo --out demo

# One thread a test process: the machine's cores are shared by the processes, and sums do not depend on the count.
# A file's tests stay in one process, so that a cluster or a trained model is made once. (loadgroup would say it more
# finely, but pytest-xdist 3.8 does not group under pytest 9.2: pytest-xdist issue 1386.)
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --quiet

check: lint             ## Lint and the fast tests: the inner loop
	$(PYTEST) -m "not slow"

test: $(VENV)/dev       ## Run all tests
	$(PYTEST)

# Sums are rounded differently without vector instructions: PyTorch's own, MKL's (matrix products) and oneDNN's.
numeric: $(VENV)/dev    ## Run the numerically sensitive tests as an old CPU would
	ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41 $(PYTEST) -m numeric

# Runs until a round fails. Hypothesis keeps what failed in .hypothesis and tries it first in the next round.
ROUNDS ?= 10
fuzz: $(VENV)/dev       ## Run the property tests on new random examples, ROUNDS=10 times; ONLY=FOLDER
	for round in $$(seq $(ROUNDS)); do HYPOTHESIS_PROFILE=fuzz $(PYTEST) -m hypothesis $(ONLY) || exit 1; done

lint: $(VENV)/dev       ## Style, types, and which layer may import which
	$(BIN)/ruff check src tests benchmarks examples docs
	$(BIN)/ruff format --check src tests benchmarks examples docs
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/dev     ## Format the code
	$(BIN)/ruff format src tests benchmarks examples docs
	$(BIN)/ruff check --fix src tests benchmarks examples docs

bench: $(VENV)/dev      ## Measure ratios: steps, worlds, growth, training, evaluation, membership attack, processes
	$(BIN)/python benchmarks/ratios.py
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/evaluation.py
	$(BIN)/python benchmarks/profile_step.py
	$(BIN)/python benchmarks/membership.py
	$(BIN)/python benchmarks/compare.py
	$(BIN)/python benchmarks/parallel.py

# Finished runs are kept in runs/, so that a killed command continues. RESULTS=quick runs small sizes into
# runs/results-quick; ONLY="toy vae" runs these experiments; RUN=no only writes pages and figures again.
RESULTS ?= full
RUN     ?= yes
results: $(VENV)/dev    ## Reproduce docs/results: RESULTS=quick in minutes, everything in about a day
	$(BIN)/python -m benchmarks.results $(ONLY) $(if $(filter quick,$(RESULTS)),--quick) $(if $(filter no,$(RUN)),--no-run)

docs: $(VENV)/docs      ## Build docs/_build/html; a warning is an error
	$(BIN)/python -m gradpivot.report.paper.explain docs/figures
	$(BIN)/gradpivot report docs/examples/audit --out docs/_build/extra/report > /dev/null
	$(BIN)/python -m sphinx -E -W --keep-going -q docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

clean:          ## Remove the environment and everything built
	rm -rf $(VENV) docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
