# make demo   the package at work, on data that needs no download
# make test   every test, lint, formatting, types
# make docs   the docs site, into build/site
# make coverage   every test again, counting what they cover, which takes half as long again
# make federation   real federations over Flower's processes, in an environment of their own
# make soak   the tests that take long: kills at random moments, fuzzing (over a million inputs), scale; make federation

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FEDERATION := $(VENV)-federation

.PHONY: demo test coverage docs federation soak clean

demo: $(VENV)/installed
	$(BIN)/adabest compare examples/demo.toml --out runs/demo

test: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest --numprocesses 2 --dist worksteal

coverage: $(VENV)/installed-dev
	$(BIN)/pytest --numprocesses 2 --cov --cov-report term:skip-covered --cov-fail-under 95

docs: $(VENV)/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

federation: $(FEDERATION)/installed
	$(FEDERATION)/bin/pytest tests/flower

soak: $(VENV)/installed-dev
	$(BIN)/pytest -m soak --numprocesses 2
	@if $(MAKE) $(FEDERATION)/installed; then $(MAKE) federation; \
		else echo "Flower can't be installed: tests/flower with real processes are skipped."; fi

$(VENV)/python $(FEDERATION)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "adabest needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(@D)
	touch $@

$(VENV)/installed: $(VENV)/python requirements.txt pyproject.toml
	$(BIN)/python -m pip install --requirement requirements.txt
	$(BIN)/python -m pip install --no-deps --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed requirements-dev.txt
	$(BIN)/python -m pip install --requirement requirements-dev.txt
	touch $@

$(FEDERATION)/installed: $(FEDERATION)/python requirements-federation.txt pyproject.toml
	$(FEDERATION)/bin/python -m pip install --requirement requirements-federation.txt
	$(FEDERATION)/bin/python -m pip install --no-deps --editable .
	touch $@

clean:
	rm -rf $(VENV) $(FEDERATION) build .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*
