# make demo   the whole pipeline on Two Moons        make test   lint, types, import contracts, doctests, tests
PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
BIN := .venv/bin
# Small networks run fastest on one thread, and two busy cores must not wait for each other.
export OMP_NUM_THREADS ?= 1

.PHONY: help setup demo test lint types contracts check attacks peers engines interchange docs release-check format clean

help:
	@echo "make demo    set up, then simulate, train, diagnose and report on Two Moons"
	@echo "make test    set up, then lint, types, import contracts, doctests and tests"
	@echo "make attacks kills, damaged files and nonsense in large numbers (an hour or two), see benchmarks/results/attacks.md"
	@echo "make peers   the tests against the real sbi and BayesFlow (installs them)"
	@echo "make interchange  the tests against ArviZ 0.x and the plots of ArviZ 1 (installs them beside)"
	@echo "make engines the tests on real clusters of Ray and MPI (installs them)"
	@echo "make docs    build the documentation site in docs/_build/html"
	@echo "make release-check  build wheel and sdist, install and use them in an empty environment"
	@echo "make format  let ruff format the code"

setup: .venv/.ok

.venv/.ok: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e ".[dev]"
	@touch $@

demo: .venv/.ok
	$(BIN)/propersbi run two_moons
	@$(BIN)/propersbi report runs/two_moons --open

test: lint types contracts check

lint: .venv/.ok
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.ok
	$(BIN)/mypy

contracts: .venv/.ok
	$(BIN)/lint-imports

check: .venv/.ok
	$(BIN)/python -m pytest -n 2 -q

attacks: .venv/.ok
	$(BIN)/python -m benchmarks.attacks

peers: .venv/.ok
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e ".[dev,peers]"
	$(BIN)/python -m pytest -q tests/peers -o "norecursedirs=.*"

# An engine that cannot be installed here in two minutes is skipped, which is printed.
engines: .venv/.ok
	@for engine in ray mpi; do \
		timeout 120 $(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e ".[dev,$$engine]" \
		|| echo "Skipped: $$engine cannot be installed here in two minutes."; \
	done
	$(BIN)/python -m pytest -q -rs tests/engines -o "norecursedirs=.*"

# ArviZ 0.x, and the plots of ArviZ 1 (which need matplotlib 3.10), lie beside the environment and not in it.
BESIDE := $(BIN)/python -m pip install --quiet --upgrade --no-deps --target
interchange: .venv/.ok
	$(BESIDE) .arviz/old "arviz<1" xarray-einstats platformdirs
	$(BESIDE) .arviz/plots arviz-plots arviz-stats xarray-einstats "matplotlib<3.11"
	PYTHONPATH=.arviz/old $(BIN)/python -m pytest -q tests/test_interchange.py
	PYTHONPATH=.arviz/plots $(BIN)/python -m pytest -q tests/test_interchange.py

# Warnings are errors, every page is executed (cached by content in docs/_cache), and links inside are checked.
docs: .venv/.ok
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e ".[dev,docs]"
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "The site is in docs/_build/html/index.html"

# Wheel and sdist, and the wheel used from an empty environment.
release-check: .venv/.ok
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e ".[dev,release]"
	rm -rf dist
	PIP_CONSTRAINT=$(abspath $(CONSTRAINTS)) $(BIN)/python -m build
	$(BIN)/python -m benchmarks.install dist/*.whl

format: .venv/.ok
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .arviz dist docs/_build docs/_cache runs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
