# make demo: install and watch AdaGPR learn.   make test: install and run every check.
.PHONY: demo test lint clean

PYTHON ?= python3
BIN := .venv/bin
INPUTS := pyproject.toml constraints.txt hatch_build.py $(wildcard src/adagpr/ops/kernels/*.[ch])

demo: .venv/.installed
	$(BIN)/adagpr train digits --without-graph --out runs/demo

test: .venv/.installed-test lint
	$(BIN)/python -m pytest -n auto

lint: .venv/.installed-test
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

clean:
	rm -rf .venv runs

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.installed: $(INPUTS) | .venv/bin/python
	@echo "Installing into .venv (some minutes the first time)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

.venv/.installed-test: $(INPUTS) | .venv/bin/python
	@echo "Installing into .venv with what the tests need (some minutes the first time)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[test]"
	@touch $@ .venv/.installed
