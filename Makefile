# Everything a developer runs. Each target has one line of help; `make` alone prints them.
# The virtual environment is made when it is missing or older than what it is made from.

TWINS := $(shell find amqpbroker -name '_*.pyx')
BIN := .venv/bin
STAMP := .venv/.stamp
FRAMES := 2000000

.DEFAULT_GOAL := help
.PHONY: help setup run test check rules bench interop fuzz slow lock clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## make .venv with pinned packages and the compiled twins

$(STAMP): requirements-build.lock requirements.lock pyproject.toml setup.py scripts/setup.sh $(TWINS)
	@scripts/setup.sh

run: $(STAMP) ## start a broker on localhost:5672 (more arguments: make run ARGS="-c conf/broker.yaml")
	@$(BIN)/amqpbroker serve $(ARGS)

test: $(STAMP) ## run the tests, without interop and campaigns (one file: make test ARGS=tests/test_cli.py)
	$(BIN)/pytest -q $(ARGS)

CHECKS := "ruff format --check" "ruff check" "mypy" "lint-imports --no-logo --no-cache"

check: $(STAMP) ## check format, style, types and layers; all of them, whatever the first one says
	@failed=0; for check in $(CHECKS); do echo "$$check"; PYTHONPATH=. $(BIN)/$$check || failed=1; done; exit $$failed

rules: $(STAMP) ## write docs/rules.md: which test shows which rule
	@$(BIN)/python scripts/rules.py

bench: $(STAMP) ## measure throughput, latency and start-up (options: make bench ARGS="--help")
	@$(BIN)/python -m bench $(ARGS)

interop: $(STAMP) ## test against other AMQP 1.0 clients; needs their tool chains
	$(BIN)/pytest -q -m interop tests/interop $(ARGS)

fuzz: $(STAMP) ## feed 2,000,000 mutated frames, five to ten minutes (fewer: make fuzz FRAMES=100000)
	PYTHONPATH=. $(BIN)/python -m tests.fuzz.mutate --frames $(FRAMES) $(ARGS)

slow: $(STAMP) ## run the tests that take long: thousands of connections, stalled consumers, attacks
	$(BIN)/pytest -q -m slow tests $(ARGS)

lock: $(STAMP) ## renew the lock files from requirements-build.in and pyproject.toml
	$(BIN)/pip-compile $(LOCK) --upgrade --output-file requirements-build.lock requirements-build.in
	$(BIN)/pip-compile $(LOCK) --upgrade --extra dev -c requirements-build.lock --output-file requirements.lock pyproject.toml

LOCK := -q --generate-hashes --allow-unsafe --strip-extras --no-header --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host

clean: ## remove all that make has made, .venv included
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find amqpbroker -name '_*.pyx' | sed 's/\.pyx$$//' | while read -r twin; do rm -f $$twin.c $$twin.*.so; done
	find . -name __pycache__ -prune -exec rm -rf {} +
