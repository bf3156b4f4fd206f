# Each target, alone on a fresh clone, makes the virtual environment, installs and runs.
#   make demo                train a small translator, translate, evaluate, draw
#   make demo LANGUAGE=zh    the same for another language; ARGS="..." passes further flags on
#   make test                the tests, with their coverage; ARGS="..." goes to pytest
#   make check               style, types, imports and spelling
PYTHON ?= python3
bin := .venv/bin
installed := .venv/installed

.PHONY: help demo test check
help:
	@sed -n 's/^#   //p' Makefile

$(installed): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(bin)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(installed)
	$(bin)/dragoman demo $(if $(LANGUAGE),--language $(LANGUAGE)) $(ARGS)

test: $(installed)
	$(bin)/python -m pytest -n 2 --cov $(ARGS)

check: $(installed)
	$(bin)/ruff check
	$(bin)/ruff format --check
	$(bin)/mypy
	$(bin)/lint-imports
	$(bin)/codespell
