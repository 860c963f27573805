# make run, make test and make bench each install what they need first. PROMPT="…" chooses the prompt of make run.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROMPT ?= Explain KV cache in LLM inference.
SOURCES := $(wildcard cli/*.py cli/page/* generation/*.py presets/*.py presets/*.yaml) pyproject.toml README.md
export PROMPT
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run test check bench clean

run: $(VENV)/.installed  ## stream an answer from the default model
	$(BIN)/minigen run -- "$$PROMPT"

test: check  ## every check that CI runs: format, lint, types, tests
	$(BIN)/python -m pytest

check: $(VENV)/.installed-dev  ## format, lint and types only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	cd $(VENV) && bin/mypy --config-file ../pyproject.toml -p minigen.generation -p minigen.presets -p minigen.cli

bench: $(VENV)/.installed-bench  ## the benchmarks; run them alone
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python $(SOURCES) constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt .
	@touch $@

# The package is installed as a wheel, not editable: what is checked is what a user gets.
$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt ".[dev]"
	@touch $@

# llama.cpp is built from its source. Where that fails, the benchmarks go on without it.
$(VENV)/.installed-bench: $(VENV)/.installed-dev
	@echo "Building llama.cpp, which takes minutes." >&2
	$(BIN)/python -m pip install --quiet --constraint constraints.txt ".[bench]" && touch $@ || \
	echo "llama-cpp-python could not be installed: the benchmarks go on without it." >&2
