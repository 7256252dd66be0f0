# make quickstart: install FRED and run its main example.   make test: install everything, run the tests, list the slowest twenty.
# make docs: the site, in docs/_build/html, every example executed (those of pages that changed, if FRED did not), and its tests.
# make images: the pictures in docs/images that FRED draws, again (about a minute).
# make golden: write again what tests compare with (the editors' schema, the page of algorithms, the picture of rooms, pinned digests), after
#   an intended change.
# make slow: the other tests that CI runs. `.ci/run` runs quickstart, lint, test, slow and docs, each with a limit of time.
# make nightly: what takes longer: the tests of minutes, fuzz, kills, mutants, pythons, newest and portable, each with its time (hours).
# make mutants: how many of the mistakes in tests/mutants.yaml the tests catch (hours).
# make fuzz: random runs inline and replayed, random mistakes in scenarios, random valid ones whole (hours). make kills: 300 kill signals.
# make portable: the pinned runs on emulated CPUs for x86-64 and arm64 (hours; needs qemu's user-mode emulators, for arm64 a Debian).
# make pythons: the tests under each of the Pythons 3.11 to 3.13 that is here. make newest: with the newest packages that setup.cfg allows.
# make house: the structure and the writing in numbers.   make lock: the lock files, each with the packages that those before it lack.
# make bench: timings against their limits.   make reproduce: the papers' figures, from data in $FRED_DATA (hours).
# make study: is asynchrony needed? Do claims made for local updates hold? Which low-communication system where? Do the intervals of
#   `fred diagnose` hold? How often do intervals over seeds? What does a failure cost? Which
#   clients should a server ask? (six hours or so.)

PYTHON ?= python3
BIN := .venv/bin
RUNTIME := .venv/runtime.installed
TEST := .venv/test.installed
DOCS := .venv/docs.installed

export FRED_DATA ?= $(wildcard ../shared/data)

.PHONY: install quickstart lint format test docs images slow nightly minutes mutants bench fuzz kills portable pythons newest golden house reproduce \
	study lock clean

install: $(RUNTIME)

quickstart: $(RUNTIME)
	$(BIN)/python -m fred quickstart

lint: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.typed
	$(BIN)/python -m tests.prose
	$(BIN)/python -m tests.naming

format: $(TEST)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: $(TEST)
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 10

slow: $(TEST)
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 10 -m "slow and not nightly"

nightly:
	@failed=; for part in minutes:60 fuzz:240 kills:60 mutants:120 pythons:120 newest:60 portable:600; do \
		.ci/part $${part%:*} $${part#*:} || failed="$$failed $${part%:*}"; done; [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

minutes: $(TEST)
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 10 -m nightly

mutants: $(TEST)
	$(BIN)/python -m tests.mutants

docs: $(DOCS)
	$(BIN)/python -m sphinx -W --keep-going -q -j 2 -b html docs docs/_build/html
	$(BIN)/python -m pytest -m "slow or not slow" tests/test_site.py -k built_page

images: $(RUNTIME)
	$(BIN)/python -m fred run quickstart --no-report --out results/images-quickstart
	cp results/images-quickstart/figures/error.svg docs/images/quickstart.svg
	$(BIN)/python docs/gallery.py

bench: $(RUNTIME)
	$(BIN)/python -m benchmarks

fuzz: $(TEST)
	$(BIN)/python -m tests.fuzz
	$(BIN)/python -m tests.golden shared

kills: $(TEST)
	$(BIN)/python -m tests.kills
	$(BIN)/python -m tests.kills_of_helpers

portable: $(TEST)
	$(BIN)/python -m tests.portable

pythons: $(TEST)
	$(BIN)/python -m tests.pythons

newest: $(TEST)
	$(BIN)/python -m tests.pythons newest -- -n 2 --dist worksteal

house: $(TEST)
	$(BIN)/python -m tests.house

golden: $(TEST)
	$(BIN)/python -m fred schema > scenarios/schema.json
	cd docs && ../$(BIN)/python -m fred list --markdown ../scenarios > algorithms.md
	$(BIN)/python -m tests.house > /dev/null
	$(BIN)/python -m tests.golden
	$(BIN)/python -m pytest -m "slow or not slow" tests/pinned --fred-update

reproduce: $(RUNTIME)
	$(BIN)/python -m reproductions

study: $(RUNTIME)
	$(BIN)/python -m studies.asked
	$(BIN)/python -m studies.asynchrony
	$(BIN)/python -m studies.coverage
	$(BIN)/python -m studies.diagnosis
	$(BIN)/python -m studies.failures
	$(BIN)/python -m studies.local_updates
	$(BIN)/python -m studies.low_communication
	$(BIN)/python -m studies.outer_momentum

lock:
	$(PYTHON) -m tests.locks

clean:
	rm -rf .venv

$(BIN)/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

$(RUNTIME): $(BIN)/python requirements.lock setup.cfg pyproject.toml
	@echo "installing FRED and what it needs into .venv: a minute or so"
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

$(TEST): $(RUNTIME) requirements-test.lock
	@echo "installing what the tests need: another minute"
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-test.lock
	touch $@

$(DOCS): $(TEST) requirements-docs.lock
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-docs.lock
	touch $@
