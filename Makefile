# Everything runs in .venv, which the first target that needs it makes.
PYTHON ?= python3
BIN := .venv/bin
unexport PYTHONDONTWRITEBYTECODE # some hundred processes would each compile all of it again

.PHONY: release demo test suite lint services bench scripts serve page tools docs soak forgetful jepsen clean

demo: .venv/installed ## clusters, jobs, agents: the main job from end to end; KEEP=1 leaves its web page until Enter
	$(BIN)/rainbow demo $(if $(KEEP),--keep)

test: .venv/dev ## everything that must hold before a commit
	@$(MAKE) --no-print-directory --jobs=2 lint suite

suite: .venv/dev services
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder -m "not soak and not docs"

forgetful: .venv/dev services ## the suite without memory: what differs from `make test` is a fault
	RAINBOW_MEMORY=off $(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder -m "not soak and not docs"

soak: .venv/dev services ## long campaigns: many examples, crashes, load
	RAINBOW_SOAK=1 $(BIN)/pytest -m "soak or hypothesis"

# STORE (sqlite, postgresql, router; all), SECONDS, SEED, NEMESIS (kill,pause,cut,clock,full,pg,neighbors) as variables
jepsen: .venv/dev services ## a history under faults, judged: STORE=sqlite SECONDS=60 SEED=7 NEMESIS=kill,pause
	$(BIN)/python -m tests.history.record $(if $(STORE),--store $(STORE)) $(if $(SECONDS),--seconds $(SECONDS)) \
	  $(if $(SEED),--seed $(SEED)) $(if $(NEMESIS),--nemesis $(NEMESIS))

lint: .venv/dev ## style, types and the shape of the house
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

services: .venv/dev ## what tests run for real (PostgreSQL, Slurm, Chromium), where apt and root are at hand
	$(BIN)/python -m tests.support.services

bench: .venv/bench ## the promised speeds, as ratios and growth
	$(BIN)/python -m benchmarks

scripts: .venv/dev services ## batch scripts on real Slurm controllers: what is answered otherwise; SEED=1 COUNT=250
	$(BIN)/python -m tests.sites.site_scripts $(or $(SEED),1) $(or $(COUNT),250)

tools: .venv/dev ## workflow tools made for Slurm, unmodified, over local clusters; TOOL=snakemake for one; needs the network once
	$(BIN)/python -m tests.tools $(TOOL)

serve: .venv/installed ## a server on http://127.0.0.1:8080, its store in ./rainbow.db
	$(BIN)/rainbow serve

page: .venv/dev services ## the web page's budgets, measured, and its pictures in build/page and docs/page
	$(BIN)/python -m benchmarks.page

# CACHE=DIR keeps wheels, OFFLINE=1 takes all from there, SIGNING_KEY=FILE signs sums and tag
release: .venv/dev ## wheel, sdist, SBOM and sums in dist/, tried in a fresh environment: VERSION=0.2.0
	$(BIN)/python -m release $(VERSION) $(if $(CACHE),--cache $(CACHE)) $(if $(OFFLINE),--offline)

docs: .venv/docs ## the site in build/site, a warning is an error; then the examples of the pages are run
	$(BIN)/python docs/site/reading.py
	$(BIN)/python docs/site/build.py
	$(BIN)/pytest -q -n 2 --dist load tests/docs/test_docs.py tests/docs/test_docs_site.py tests/docs/test_docs_blocks.py tests/docs/test_docs_slurm.py tests/docs/test_pasted.py tests/docs/test_reading.py tests/docs/test_notebook.py

.venv/bin/python:
	$(PYTHON) -m venv .venv || { apt-get update && apt-get install -y python3-venv && $(PYTHON) -m venv .venv; }

.venv/installed: pyproject.toml .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

.venv/dev: pyproject.toml .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@ .venv/installed

.venv/docs: .venv/dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $@

.venv/bench: .venv/dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[bench]"
	touch $@

clean: ## what was made here, the virtual environment too
	rm -rf .venv build .pytest_cache .mypy_cache .ruff_cache .hypothesis
