# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
DEMO := .venv/.demo
DEV := .venv/.dev
KERNELS := .venv/.kernels
SITE := .venv/.site

# Several processes import the tests: what Python and pytest compile is kept for the others and for the next run.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test fast test-slow test-gpu check format docs site lock audit clean

demo: $(DEMO)
	rm -rf build/demo
	$(BIN)/chainrule compare builtin:shakespeare --ladder quick --minutes 2 --out build/demo

# Types are checked while tests run.
test: $(KERNELS)
	$(MAKE) --jobs 2 check fast

fast: $(KERNELS)
	$(BIN)/python -m pytest -n 2

test-slow: $(DEV) $(KERNELS)
	$(BIN)/python -m pytest -n 2 -m slow

# What a GPU writes is what the plain way writes; these folders alone, since a GPU machine may lack what others need.
test-gpu: $(DEV) $(KERNELS)
	$(BIN)/python -m pytest -m gpu tests/inference tests/networks

check: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(DEV)
	$(BIN)/python docs/update_help.py
	$(BIN)/python docs/update_lectures.py

site: $(SITE)
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -c docs/site -d build/site-cache . build/site

# Hashes of the files of every architecture, without torch and what it alone needs: its builds differ.
lock: $(DEV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt uv
	mkdir -p build
	echo "torch; sys_platform == 'none'" > build/no-torch.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.11 \
	  --constraint constraints.txt --override build/no-torch.txt $(addprefix --no-emit-package ,torch sympy mpmath networkx) \
	  --extra dev pyproject.toml --output-file locked.txt

# Known vulnerabilities of the versions in constraints.txt, from the index of packages: it needs a connection.
audit:
	test -x build/audit/bin/pip-audit || ($(PYTHON) -m venv build/audit && build/audit/bin/pip install --quiet pip-audit)
	build/audit/bin/pip-audit --strict --disable-pip --no-deps --requirement constraints.txt

clean:
	rm -rf .venv build *.egg-info src/*.egg-info

# The demo needs n-grams, the tape and the report: 0.5 GB. Tests need everything, torch too.
$(DEMO): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[report]'
	touch $(DEMO)

$(DEV): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[dev]'
	touch $(DEV) $(DEMO)

# The site needs little, and not what tests need.
$(SITE): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $(SITE)

# Kernels are compiled once, by two processes, before tests run in several: numba keeps them on disk.
$(KERNELS): $(DEV) tests/compile_kernels.py $(shell find src/chainrule -name '*kernels.py')
	$(BIN)/python tests/compile_kernels.py
	touch $(KERNELS)
