# Needs python3 >= 3.11 (with venv) and make; every target makes .venv and installs what it needs into it.
# Paths are relative and tools are run as "python -m": both so that a folder with spaces in its name works
# (make splits targets at spaces, and the scripts in .venv/bin start with a #! line that cannot hold one).

PYTHON ?= python3
PY := .venv/bin/python
PYTEST := $(PY) -m pytest
# Capturing a model is one thread's work: tests go in parallel, with one torch thread each.
PARALLEL := -n auto --maxprocesses 4 --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test test-slow cover check architecture pictures real real-quick importers browser dist bench soak fuzz coverage docs notebooks clean FORCE

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

demo: .venv/installed-demo ## convert a small network, say how close it comes at what energy, and write an HTML report
	$(PY) -m spikecast demo

QUICK := -m "not slow and not real and not bench and not browser and not importers"

test: .venv/installed-dev ## all tests that are neither slow nor in need of the real models
	OMP_NUM_THREADS=1 $(PYTEST) $(PARALLEL) $(QUICK)

cover: .venv/installed-dev ## the same with the coverage of src, which takes half as long again
	OMP_NUM_THREADS=1 $(PYTEST) $(PARALLEL) --cov $(QUICK)

test-slow: .venv/installed-dev ## the slow tests: every model that is claimed to convert
	OMP_NUM_THREADS=1 $(PYTEST) $(PARALLEL) -m "slow and not real and not bench and not browser and not importers"

check: .venv/installed-dev ## lint, format, types, import contract
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -c "from importlinter.cli import lint_imports_command as run; run()" --no-logo --no-cache

architecture: .venv/installed-dev ## draw docs/architecture.svg anew, after imports have changed
	$(PY) docs/draw_architecture.py

pictures: .venv/installed-dev ## draw docs/pictures anew, after the neuron or the costs have changed
	$(PY) docs/draw

real: .venv/installed-dev ## the tests on real models and images (SPIKECAST_REAL, or ../shared/real)
	@home=$${SPIKECAST_REAL:-../shared/real}; \
	if [ ! -f "$$home/loaders.py" ]; then \
		echo "make real: no $$home/loaders.py; set SPIKECAST_REAL to the folder of the real models" >&2; exit 1; \
	fi; \
	SPIKECAST_REAL="$$home" $(PYTEST) -m real

real-quick: .venv/installed-dev ## some minutes of them, in parallel, as CI runs them
	OMP_NUM_THREADS=1 $(PYTEST) $(PARALLEL) -m "real and not slow" tests/real

browser: .venv/installed-dev ## the report in a real Chromium; screenshots go to out/screenshots
	SPIKECAST_SCREENSHOTS=out/screenshots $(PYTEST) -m browser tests/browser

# Importers of NIR files bind each other's versions: each has an environment of its own, on top of the torch of .venv.
IMPORTERS := snntorch spikingjelly sinabs
IMPORTERS_HOME := $(HOME)/.cache/spikecast/importers

importers: .venv/installed-dev ## install snnTorch, SpikingJelly and Sinabs, each apart, and hold NIR exports against them
	@base=$$($(PY) -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'); \
	for name in $(IMPORTERS); do \
		place="$(IMPORTERS_HOME)/$$name"; \
		[ -f "$$place/installed" ] && continue; \
		echo "Installing $$name into $$place"; \
		$(PY) -m venv "$$place" && \
		echo "$$base" > "$$("$$place/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/base.pth" && \
		"$$place/bin/python" -m pip install --quiet --disable-pip-version-check "$$name" nir nirtorch && \
		touch "$$place/installed" || exit 1; \
	done
	$(PYTEST) -m importers -s

bench: .venv/installed-dev ## the benchmarks; wants an idle machine
	$(PY) -m benchmarks

soak: .venv/installed-dev ## half an hour of conversions, runs, files and kills in many processes and threads
	OMP_NUM_THREADS=1 $(PY) -m benchmarks.soak

fuzz: .venv/installed-dev ## hostile files, five minutes of each kind (FUZZ="artifacts --count 200000 --seconds 3600" for others)
	OMP_NUM_THREADS=1 $(PY) -m benchmarks.fuzz $(FUZZ)

docs: .venv/installed-dev ## the documentation as a site, in out/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet

notebooks: .venv/installed-dev ## run examples/notebooks anew, and keep what they print and draw
	OMP_NUM_THREADS=1 $(PY) examples/notebooks/run.py

coverage: .venv/installed-dev ## every family of timm and every network of torchvision; takes hours, goes on where it stopped
	OMP_NUM_THREADS=1 $(PY) -m benchmarks.coverage
	$(PY) -m benchmarks.coverage --page docs

dist: .venv/installed-dev ## the wheel and the sdist, in dist/; their contents are checked
	rm -rf dist
	$(PY) -m build --no-isolation
	$(PY) -m twine check --strict dist/*
	$(PYTEST) -q tests/packaging

clean: ## remove caches and build products (not .venv)
	rm -rf build dist out .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name .venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# Installed anew when pyproject.toml or the version is newer, and when the folder was moved or copied along with its .venv,
# which would otherwise go on importing the sources of the old place. Modules are compiled when they are imported, not all of
# torch's at once.
ifneq "$(shell cat .venv/home 2>/dev/null)" "$(CURDIR)"
MOVED := FORCE
endif

.venv/installed-%: pyproject.toml src/spikecast/_version.py $(MOVED)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "spikecast needs Python 3.11 or newer: make PYTHON=...")'
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@echo "Installing spikecast[$*] into .venv; the first time this takes some minutes."
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-compile --editable ".[$*]"
	@pwd -P > .venv/home
	@touch $@
