# usdt-toolkit: `make help` lists what there is to make.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

# Python keeps its bytecode here whatever the environment says: the tests start the commands thousands of
# times, and each start would compile all of their modules again.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=
BENCH_ARGS ?=
# Jobs of a make inside: its own, unless make shares them out already.
JOBS = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j"$$(nproc)")
NOX_ARGS ?=
ARCH ?= amd64

.PHONY: help setup demo test pytest collected collected-first collected-second test-vm test-vm-all test-release test-pythons vm lint docs fuzz torture bench performance testbins packages dist deb pyz clean

# An environment holds absolute paths: one that came along with a moved or copied checkout, or whose
# Python is gone, is made again.
ifneq ($(shell test -x $(VENV)/bin/python && cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|' 2>/dev/null \
		|| grep -o '^[a-z-]*:.*## .*' Makefile

setup: $(STAMP)  ## an environment in .venv/ with both commands in it
	@:

$(STAMP): pyproject.toml tools/venv.sh
	@tools/venv.sh $(VENV) '$(CURDIR)'

demo: $(STAMP)  ## start a live Python program and trace its probes (root)
	@tools/demo.sh

test: $(STAMP)  ## everything that can be checked on this machine
	@$(MAKE) -j3 lint pytest
	@$(call cells,quick)

# Four at a time, beside lint: two thirds of what they take is waiting for kernel and processes. What
# a test starts is no part of this make.
pytest: collected
	@echo 'test: pytest'
	@env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS $(VENV)/bin/pytest -q -n 4 --dist loadfile --no-loadscope-reorder \
		--durations=10 $(PYTEST_ARGS)

# Compiles the tests once, if one is new: each worker of pytest would compile all of them. After
# testbins, because some tests build programs when they are collected. What cannot be collected is
# shown by the run itself. In halves: one CPU takes twelve seconds in a new clone.
collected: collected-first collected-second

collected-first: part := tests/[a-k]*
collected-second: part := tests/[l-z]*
collected-first collected-second: testbins
	@[[ -z $$(find usdt kprobe tests -name '*.py' -newer '$(VENV)/.$@' -print -quit 2>&1) ]] \
		|| { $(VENV)/bin/pytest -q --collect-only $(part) >/dev/null 2>&1 || true; touch '$(VENV)/.$@'; }

# Tests inside other kernels (QEMU), two at a time: tests/vm/README.md. pytest's watch for tests that
# hang is off: a cell takes minutes, and is watched by its machine.
cells = tools/packages.sh vm; \
	echo 'test: virtual machines, $(1)'; \
	USDT_VM=$(1) $(VENV)/bin/pytest -q -o hang_timeout=0 $(PYTEST_ARGS) tests/vm/test_vm.py \
	$(if $(PYTEST_ARGS),|| [[ $$? == 5 ]])  # which may choose none of them

test-vm: $(STAMP) testbins  ## all live tests inside other kernels (QEMU)
	@$(call cells,live)

test-vm-all: $(STAMP) testbins  ## the same on other CPUs as well: an hour or two
	@$(call cells,all)

vm: $(STAMP) testbins  ## KERNEL=6.1 [ARCH=amd64] [TEST='tests/live -x']: a shell, or tests, in a kernel
	@tools/packages.sh vm
	@PYTHONPATH=tests:tests/support $(VENV)/bin/python -m vm '$(KERNEL)' --cpu '$(ARCH)' $(TEST)

test-release: $(STAMP)  ## the Debian package: builds twice, lintian, what is in it; two minutes
	@USDT_RELEASE=1 $(VENV)/bin/pytest -q -o hang_timeout=0 $(PYTEST_ARGS) tests/release

# Its environments are in build/nox; NOX_ARGS='-s tests-3.14 -- tests/elf' chooses.
test-pythons: dist  ## the wheel with other Pythons, up to the newest: half an hour
	@$(VENV)/bin/nox -f tools/noxfile.py $(NOX_ARGS)

lint: $(STAMP)  ## ruff, mypy, and which way imports point
	@echo 'lint: ruff check, ruff format, mypy --strict, import-linter'
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/ruff format --quiet --check . \
		|| { echo 'lint: not formatted; run: $(VENV)/bin/ruff format .' >&2; exit 1; }
	@tools/mypy.sh $(VENV)/bin/mypy --no-error-summary
	@tools/mypy.sh $(VENV)/bin/mypy --no-error-summary --strict bench/*.py examples/*.py tools/*.py
	@words=$$($(VENV)/bin/lint-imports --no-cache --no-logo) \
		|| { echo "$$words" >&2; echo 'lint: imports must point down only; see docs/architecture.md' >&2; exit 1; }

# Its tools are installed only here; tests/test_site.py checks links and navigation without them.
docs: $(STAMP)  ## the documentation site in build/site/, from docs/
	@NO_MKDOCS_2_WARNING=1 tools/docs.sh $(VENV)

packages:  # what tests need of the system: installed as root, named otherwise
	@tools/packages.sh
	@tools/packages.sh peers
	@tools/packages.sh dwarf
	@tools/cross.sh

testbins: $(STAMP) packages  ## the C and C++ programs with probes that tests trace
	@if echo '#include <sys/sdt.h>' | gcc -E -x c - >/dev/null 2>&1; then \
		echo 'testbins: make'; tools/fixtures.sh $(MAKE) -s $(JOBS) all cross PYTHON='$(CURDIR)/$(VENV)/bin/python'; \
	else echo 'testbins: skipped, no gcc or no sys/sdt.h'; fi

fuzz: $(STAMP)  ## mutated inputs for every parser; FUZZ_ARGS='--seconds 3600 --seed 7 dwarf'
	@PYTHONPATH=.:tests:tests/support:tests/fuzz $(VENV)/bin/python tests/fuzz/__main__.py $(FUZZ_ARGS)

torture: $(STAMP) testbins  ## kill, stop and starve tracers and targets; TORTURE_ARGS='--seconds 3600 --seed 7'
	@PYTHONPATH=.:tests:tests/support $(VENV)/bin/python tests/torture/__main__.py $(TORTURE_ARGS)

bench: $(STAMP) testbins  ## what a hit costs, how fast a trace starts and attaches, beside bpftrace and libbpf
	@$(VENV)/bin/python bench/bench.py $(BENCH_ARGS)

performance: $(STAMP) testbins  ## how costs grow with the work, to docs/performance.md; wants a quiet machine
	@$(VENV)/bin/python bench/scale.py

dist: $(STAMP)  ## wheel and source distribution of the commit, in dist/
	@tools/dist.sh $(VENV) dist

deb: dist  ## a Debian package of the commit in build/deb/, checked by lintian
	@tools/deb.sh dist/usdt_toolkit-*.tar.gz build/deb

pyz: $(STAMP)  ## build/usdt.pyz: both commands as one file, for any Python 3.11 or newer
	@$(VENV)/bin/python tools/pyz.py build/usdt.pyz

clean:  ## remove everything that was made
	@rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis testbins/out testbins/cross
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo 'clean: done'
