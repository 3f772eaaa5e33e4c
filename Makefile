# Two commands do all the set-up on a bare machine with Python 3.11 or newer: make demo, make test.
#
#   PYTHON       the interpreter to build .venv with; found by scripts/find_python.sh when empty
#   TORCH_INDEX  a package index that torch alone is taken from, for example PyTorch's CPU index;
#                everything else still comes from where pip looks by default
#   CHROMIUM     the browser for the browser tests; found by scripts/find_chromium.sh when empty
#   JOBS         how many tests run at a time: three for two cores, because some wait for a browser or a process
#   ARGS         more arguments for pytest: make test ARGS="tests/docs -x"
PYTHON ?=
TORCH_INDEX ?=
CHROMIUM ?=
JOBS ?= 3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
# The tests run side by side, so each gets one thread: more would fight over the same cores. Each worker
# begins with one part of the list, so that neighbours share what they set up, and takes from others when it is done.
# They start more than a hundred processes; without cached bytecode each of them would compile the package again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-gpu lint style format docs site page bench clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

demo: $(VENV)/.installed  ## set up, then train a translator in some minutes and look inside
	$(BIN)/regard demo

test: style  ## set up, then run lint, types and all tests but the slow ones
	@$(find-chromium) && $(PYTEST) $(ARGS)

test-all: style  ## the same and the slow tests too
	@$(find-chromium) && $(PYTEST) -m "slow or not slow" $(ARGS)

test-gpu: $(VENV)/.extra-test  ## the tests that need an NVIDIA GPU, skipped elsewhere
	$(PYTEST) -m "gpu and not slow" $(ARGS)

lint: style  ## check style, format and types
	$(BIN)/mypy

style: $(VENV)/.extra-test  # the types are checked by tests/repository/test_types.py, beside the other tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.extra-test  ## put the code into the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.extra-docs  ## build the documentation into docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

site: $(VENV)/.extra-docs  ## build the docs, the book, its notebooks and the explorer into site/, ready for GitHub Pages
	rm -rf site
	$(BIN)/python -m sphinx -W --keep-going -b html -t site -d docs/_build/doctrees docs site
	mkdir site/notebooks && cp docs/book/notebooks/*.ipynb docs/learn/notebooks/*.ipynb site/notebooks
	touch site/.nojekyll
	$(BIN)/regard explore --export site/explorer

page:  ## build the page of `regard explore` into regard/look/page/static (needs Node; users do not)
	cd web && npm ci && npm run build

bench: $(VENV)/.extra-bench  ## run the benchmarks
	for script in $$(grep -l __main__ benchmarks/*/*.py); do $(BIN)/python $$script || exit 1; done

clean:  ## remove the environment and everything that was built
	rm -rf $(VENV) build dist site docs/_build docs/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find regard tests docs benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# What is installed is remembered by empty files, so a second run starts at once; they are made
# anew when pyproject.toml or constraints.txt changes.
$(VENV)/.created:
	@python=$$(sh scripts/find_python.sh "$(PYTHON)") && echo "making $(VENV) with $$python" && \
	"$$python" -m venv $(VENV)
	@touch $@

# --no-deps and a step of its own: torch comes from TORCH_INDEX and nothing else does. Given as
# --extra-index-url, that index could also answer for packages that belong to PyPI.
$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	@echo "installing regard and PyTorch: a minute or more the first time"
	$(if $(TORCH_INDEX),$(PIP) --no-deps --index-url "$(TORCH_INDEX)" torch)
	$(PIP) -e .
	@touch $@

$(VENV)/.extra-%: $(VENV)/.installed
	$(PIP) -e ".[$*]"
	@touch $@

find-chromium = export CHROMIUM="$(CHROMIUM)"; CHROMIUM=$$(sh scripts/find_chromium.sh)
