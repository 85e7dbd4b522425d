# Two commands set up everything on a machine with Python 3.11 or newer and make:
#   make demo    the main job on the embedded model
#   make test    the tests, under four minutes
# For contributors: make check (format, lint, types, tests), make test-all (the slow ones too).

# The lock was made with 3.11: it is tried first, then what else is there.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; \
	done)
BIN := .venv/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check -c requirements.lock

# One process for each of two cores. By hand (`pytest tests/test_x.py`) there is one, which a debugger can stop.
TWO_AT_A_TIME := -n 2 --dist loadgroup

.PHONY: demo test check test-all docs tools clean

demo: .venv/runtime
	$(BIN)/seqto demo --out runs/demo

test: .venv/dev
	$(BIN)/python -m pytest $(TWO_AT_A_TIME)

check: .venv/dev
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check

# tvm, Ray, OpenVINO and the kernels of CPUs without VNNI have environments of their own; where one cannot be installed, that is said and
# its tests are left out.
# The big run comes last, so that its summary is the last line.
test-all: .venv/dev tools docs
	scripts/test-tvm "$(PYTHON)"
	scripts/test-openvino "$(PYTHON)"
	scripts/test-ray "$(PYTHON)"
	scripts/test-avx2
	$(BIN)/python scripts/audit
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check -m "not tvm and not openvino and not ray"

# the documentation as a site in site/, warnings are errors
docs:
	scripts/docs-site "$(PYTHON)"

tools:
	scripts/debian-tools
	scripts/axe-core

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/it" >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/runtime: .venv/bin/python pyproject.toml requirements.lock
	$(BIN)/python $(PIP_INSTALL) -e '.[hub]'
	@touch $@

.venv/dev: .venv/bin/python pyproject.toml requirements.lock
	$(BIN)/python $(PIP_INSTALL) -e '.[hub,detection,text,parquet,datasets,dev]'
	@touch $@ .venv/runtime

clean:
	rm -rf .venv .venv-tvm .venv-openvino .venv-ray .venv-audit .venv-docs site build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
