# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
KERNELS := .venv/.kernels
SITE := .venv/.site

.PHONY: demo test test-slow check format docs site clean

demo: $(STAMP)
	rm -rf build/demo
	$(BIN)/chainrule compare builtin:python --out build/demo

test: check $(KERNELS)
	$(BIN)/python -m pytest -n 2

test-slow: $(STAMP) $(KERNELS)
	$(BIN)/python -m pytest -n 2 -m slow

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)
	$(BIN)/python docs/update_help.py

site: $(SITE)
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -c docs/site -d build/site-cache . build/site

clean:
	rm -rf .venv build *.egg-info src/*.egg-info

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

# The site needs little, and not what tests need.
$(SITE): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $(SITE)

# Kernels are compiled once, by two processes, before tests run in several: numba keeps them on disk.
$(KERNELS): $(STAMP) tests/compile_kernels.py $(shell find src/chainrule -name '*kernels.py')
	$(BIN)/python tests/compile_kernels.py
	touch $(KERNELS)
