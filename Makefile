# Shelf. `make` alone lists the targets.

# The nested modules: they hold what users of the library must not have to download.
NESTED := internal/chart examples/catalogue integration consistency internal/drill bench
# Those whose tests are not a part of `make test`: make integration runs them.
APART := integration

GO ?= go
# One version of the linter, in the project's own bin: another one would find other things.
LINT_VERSION := v2.15.0
LINT := $(CURDIR)/bin/golangci-lint-$(LINT_VERSION)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: quickstart
quickstart: ## see what the library does, with nothing installed
	$(GO) run ./examples/quickstart

.PHONY: hotkey
hotkey: ## one key that gets 80 % of the reads, and a bot that asks for what does not exist: PASS or FAIL; needs redis-server, some 40 seconds
	$(GO) run ./examples/hotkey

.PHONY: test
test: servers ## all tests, with the race detector, against real Redis and PostgreSQL (says what it skips without them; CI=true: fails)
	$(GO) test -race -timeout 20m ./...
	@for m in $(filter-out $(APART),$(NESTED)); do echo "-- $$m"; (cd $$m && $(GO) test -race -timeout 20m ./...) || exit 1; done
	@$(MAKE) --no-print-directory servers

.PHONY: integration
integration: ## the client's behaviour on every kind of node, and a table of it (Redis and Valkey in containers, where a Docker engine answers)
	cd integration && $(GO) test -race -count=1 -timeout 10m

# How long `make consistency` reads and writes; it needs some 10 s more.
DURATION ?= 60s

.PHONY: consistency
consistency: ## how fresh the answers are while nodes and network break: a fleet of processes, real servers, a table, PASS or FAIL
	cd consistency && $(GO) build -o ../bin/consistency .
	@bin/consistency -duration $(DURATION)

# A part of the name of the drills that `make drill` plays, and where it puts its charts.
ONLY ?=
CHARTS ?=

.PHONY: drill
drill: ## what the users and the database notice while nodes, network and database break: a line a fault, PASS or FAIL; some 12 minutes (ONLY=kill: some)
	cd internal/drill && $(GO) build -o ../../bin/drill .
	@bin/drill -only "$(ONLY)" -charts "$(CHARTS)"

.PHONY: servers
servers: ## say what the tests will not find
	@command -v redis-server >/dev/null || echo "redis-server is not installed: the tests that need it are skipped (apt-get install redis-server)"
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || \
		echo "PostgreSQL is not installed: the tests that need it are skipped (apt-get install postgresql)"

.PHONY: root
root: ## the root module as its users get it: without the workspace
	GOWORK=off $(GO) build ./...
	GOWORK=off $(GO) vet ./...
	GOWORK=off $(GO) test ./...
	@for m in $(NESTED); do echo "-- $$m"; (cd $$m && GOWORK=off $(GO) build ./... && GOWORK=off $(GO) mod tidy -diff) || exit 1; done
	GOWORK=off $(GO) mod tidy -diff

.PHONY: lint
lint: $(LINT) ## gofmt, go vet, golangci-lint
	@test -z "$$(gofmt -l .)" || { echo "not gofmt-ed:"; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(LINT) run ./...
	@for m in $(NESTED); do echo "-- $$m"; (cd $$m && $(GO) vet ./... && $(LINT) run ./...) || exit 1; done

$(LINT):
	GOWORK=off GOBIN=$(CURDIR)/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv bin/golangci-lint $@

.PHONY: linter
linter: $(LINT) ## install the linter

.PHONY: bench
bench: ## every benchmark, long enough to read
	$(GO) test -run '^$$' -bench . -benchmem ./...

.PHONY: bench-once
bench-once: ## every benchmark once, so that none rots
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...

# Where `make bench-compare` and `make bench-scaling` put their tables and charts. With ONLY=... for a part of them, say RESULTS=... too.
RESULTS ?= bench/results

.PHONY: bench-compare
bench-compare: bin/bench ## Shelf beside the other clients and caches, on real servers: tables, demands, PASS or FAIL; some 12 minutes (ONLY=l1: a part)
	@mkdir -p $(RESULTS)
	@bin/bench -only "$(ONLY)" -md $(RESULTS)/compare.md -charts $(RESULTS)

.PHONY: bench-scaling
bench-scaling: bin/bench ## how costs grow with goroutines, nodes, keys, value size and batch: tables, charts; some 5 minutes
	@mkdir -p $(RESULTS)
	@bin/bench -scaling -only "$(ONLY)" -md $(RESULTS)/scaling.md -charts $(RESULTS)

# The revision that `make bench-check` compares the working tree with; empty: see bench -help.
BASE ?=

.PHONY: bench-check
bench-check: bin/bench ## has a path become slower by a tenth since BASE? Both builds side by side: PASS, FAIL or UNSURE; 1 to 5 minutes
	@bin/bench -check -base "$(BASE)"

.PHONY: bin/bench
bin/bench:
	cd bench && $(GO) build -o ../bin/bench .

.PHONY: fuzz
fuzz: ## each fuzz target for 20 seconds
	@$(GO) list ./... | while read -r p; do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
			echo "-- $$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime 20s $$p || exit 1; \
		done; done

.PHONY: pushes
pushes: ## how long a process serves its own copy after another one has invalidated it: a histogram
	$(GO) test -count=1 -v -run '^TestPushLag$$' ./client

.PHONY: explore
explore: ## every interleaving of the freshness protocol, deeper than make test goes, and without each guard; a verdict: some minutes, 1.5 GB
	$(GO) test -c -o bin/explore.test ./internal/explore
	@bin/explore.test -test.run 'Interleaving|Guard' -test.v -test.timeout 20m -explore.depth=1

.PHONY: catalogue
catalogue: ## the example service over PostgreSQL, with everything it needs started for it
	cd examples/catalogue && $(GO) run .

.PHONY: load
load: ## what the database sees with and without the cache: the example service under load, some 40 seconds
	cd examples/catalogue && $(GO) run . -load

.PHONY: ci
ci: ## what the continuous integration runs
	bash .ci/run
