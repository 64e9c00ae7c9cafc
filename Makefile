# A newcomer needs two commands: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOME_DIVERGE := || test $$? -eq 3  # as some settings do, which is told in the results

PYTEST := $(BIN)/pytest -q -n auto --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-all setup lint errata rooms documents reproduce results bench clean

demo: setup  ## Decide Table 1 of Wen, Li & Ma and draw its pictures.
	$(BIN)/flatlab run wen2023/table1 --out results

test: lint  ## Lint, types and the tests that are not marked slow.
	$(PYTEST) -m "not slow"
	@echo "Tests marked slow were left out: make test-all runs them too."

test-all: lint  ## Lint, types and every test.
	$(PYTEST)

setup: $(VENV)/installed  ## Create .venv and install flatlab into it.

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "flatlab needs Python 3.11 or newer, found " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

errata: setup  ## Check what decides the errata of the sources, and write docs/errata.md anew.
	$(BIN)/python -m flatlab.report.errata_page docs/errata.md

rooms: setup  ## Draw the rooms of the code and their imports: docs/images/rooms.png.
	$(BIN)/python tests/rooms.py

documents: setup  ## Write the tables of README.md and docs/measures.md anew.
	$(BIN)/python tests/documents.py

reproduce: setup  ## Decide every figure of Wen, Li & Ma (preset lab).
	$(BIN)/flatlab reproduce wen2023 --out results

results: setup  ## Run them in both sizes, and the open questions; write docs/results anew.
	$(BIN)/flatlab reproduce wen2023 --preset paper --out results $(SOME_DIVERGE)
	$(BIN)/python -m flatlab.report.results_page results/wen2023-paper docs/results/wen2023.md
	$(BIN)/flatlab reproduce wen2023 --out results $(SOME_DIVERGE)
	$(BIN)/python -m flatlab.report.results_page results/wen2023-lab docs/results/lab/wen2023.md results/wen2023-paper
	$(BIN)/flatlab reproduce beyond --out results $(SOME_DIVERGE)
	$(BIN)/python -m flatlab.report.results_page results/beyond-lab docs/results/beyond.md

bench: setup  ## Measure the engine against its peers, as ratios from one run.
	$(BIN)/flatlab bench

clean:
	rm -rf $(VENV) results dist .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
