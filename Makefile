# Two commands do everything on a fresh clone with Python and make: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
KERNELS := $(wildcard $(addprefix src/consentroid/,core/compile.py paper/node/_*.py paper/nearest/*.py paper/dual/_*.py \
             site/kernels/*.py rowprices/judge.py verify/*.py))

.PHONY: demo test test-long test-faults docs clean

demo: $(VENV)/.compiled
	$(BIN)/consentroid demo --out demo

test: $(VENV)/.installed-test $(VENV)/.compiled-paper
	$(BIN)/ruff check src tests examples
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist loadgroup -m "not faults" --cov --cov-report=
	@echo "Lines covered, without kernels and processes of their own: $$($(BIN)/coverage report --format=total) %"

test-long: $(VENV)/.installed-test $(VENV)/.compiled-paper
	CONSENTROID_DRAWS=10 $(BIN)/pytest -n 2 --dist loadgroup -m "not faults" \
	  tests/attacks tests/paper tests/rowprices tests/site tests/transport tests/verify

test-faults: $(VENV)/.installed-test
	$(BIN)/pytest -m faults

docs: $(VENV)/.installed-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e ".[sklearn,plots]"
	touch $@

$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e ".[test]"
	touch $@ $(VENV)/.installed

$(VENV)/.compiled: $(VENV)/.installed $(KERNELS)
	$(BIN)/consentroid warmup
	touch $@

$(VENV)/.compiled-paper: $(VENV)/.installed $(KERNELS)
	$(BIN)/consentroid warmup --paper
	touch $@ $(VENV)/.compiled

clean:
	rm -rf $(VENV) demo site .pytest_cache .mypy_cache .ruff_cache
