# make help says what there is. Everything builds from Go modules, as any user,
# into bin/ and into a cache outside of the tree.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
CACHE   ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/canary-controller
TOOLS   := $(CACHE)/tools
SUMMARY := $(TOOLS)/testsummary

# Every Go module of the repository, the product's own first.
FILES    = $(shell git ls-files '*go.mod' 2>/dev/null || find . -name go.mod)
MODULES := . $(sort $(patsubst %/,%,$(filter-out ./,$(dir $(filter %/go.mod,$(FILES))))))

# The race detector needs cgo, and that a C compiler.
RACE   := $(shell test "$$(go env CGO_ENABLED)" = 1 && command -v $$(go env CC) >/dev/null && echo -race)
COUNTS ?= $(CACHE)/counts
# make lint has all of vet, and go test would analyse what the tests import once more.
TEST    = go test -json -vet=off -timeout 20m
# Neither tests nor servers are linked with debug information, so none has to be compiled.
lint unit e2e scale servers: export GOFLAGS := $(GOFLAGS) -gcflags=all=-dwarf=false
# Set when a cluster of one's own is given on the command line, not by the environment alone.
OWN     = $(filter command,$(firstword $(origin KUBECONFIG)))
SHOW    = $(SUMMARY) -counts $(COUNTS) -expected-skips $(CURDIR)/.ci/expected-skips $(if $(OWN),-expected-skips $(CURDIR)/.ci/expected-skips-own-cluster)

.PHONY: help
help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the operator, kubectl-canary, the demo and the examples into bin/
	go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/ ./controller/cmd/... ./deploy/demo ./deploy/examples/...

.PHONY: generate
generate: ## Write the generated files anew: deepcopy, clients, CRD
	TOOLS_BIN=$(TOOLS) tools/generate.sh

.PHONY: lint
lint: lint-format lint-code lint-generated ## gofmt, go vet, staticcheck, generated files current

.PHONY: lint-format
lint-format:
	@bad=$$(gofmt -l .); if [ -n "$$bad" ]; then echo "not formatted by gofmt:"; echo "$$bad"; exit 1; fi; echo "ok   gofmt"

# Modules that hold whole servers. To analyse one means to analyse some 1,500 packages of
# other projects first, which takes longer than to build them, so they are held to the
# checks of vet that look at one package at a time.
HEAVY   := deploy/lab deploy/servers/jaeger

# The build tag e2e adds the tests that need servers; nothing is built only without it.
.PHONY: lint-code
lint-code: $(TOOLS)/.built
	@for m in $(MODULES); do ( cd "$$m"; [ -n "$$(go list -tags e2e ./... 2>/dev/null)" ] || exit 0; \
	  case " $(HEAVY) " in \
	  *" $$m "*) $(TOOLS)/vetalone ./...; echo "ok   go vet $$m, package by package";; \
	  *) $(TOOLS)/lint -tags e2e ./...; echo "ok   go vet and staticcheck $$m";; esac ); done

# Generates into a copy, so that the tree is left as it is.
.PHONY: lint-generated
lint-generated: $(TOOLS)/.built
	@copy=$$(mktemp -d); trap 'rm -rf "$$copy"' EXIT; \
	mkdir -p "$$copy/controller" "$$copy/deploy"; \
	cp -r go.mod go.sum tools "$$copy/"; \
	cp -r controller/apis controller/generated "$$copy/controller/"; cp -r deploy/crd "$$copy/deploy/"; \
	( cd "$$copy" && TOOLS_BIN=$(TOOLS) tools/generate.sh ) || exit 1; \
	for d in controller/apis controller/generated deploy/crd; do \
	  diff -r "$$d" "$$copy/$$d" || { echo "$$d is not current: run make generate and commit what changes"; exit 1; }; done; \
	echo "ok   generated files"

.PHONY: unit
unit: $(SUMMARY) servers ## Unit tests of every module, the product's with the race detector
	@$(if $(RACE),,echo "no C compiler: the race detector stays off")
	@for m in $(MODULES); do ( cd "$$m"; race=; [ "$$m" != . ] || race=$(RACE); \
	  [ -n "$$(go list -f '{{or .TestGoFiles .XTestGoFiles}}' ./... 2>/dev/null | grep -v '^\[\]$$' || true)" ] || exit 0; \
	  { $(TEST) $$race ./... || true; } | $(SHOW) ) || failed=1; done; exit $${failed:-0}

# Only the tests of files with the tag: make unit has the others of their packages.
.PHONY: e2e
e2e: $(SUMMARY) servers ## Tests against a real API server, Prometheus and other servers
	@for m in $(MODULES); do ( cd "$$m"; \
	  packages=$$(grep -rl --include='*_test.go' '^//go:build e2e' . | xargs -r -n1 dirname | sort -u); \
	  root=$$(go list -m -f '{{.Dir}}'); own=; tests=; \
	  for p in $$packages; do [ "$$(cd "$$p" && go list -m -f '{{.Dir}}')" = "$$root" ] || continue; \
	    own="$$own $$p"; tests="$$tests $$(grep -l '^//go:build e2e' "$$p"/*_test.go | xargs sed -n 's/^func \(Test[^(]*\)(t .*/\1/p')"; done; \
	  [ -n "$$own" ] || exit 0; \
	  { $(if $(OWN),E2E_KUBECONFIG='$(abspath $(KUBECONFIG))') $(TEST) -tags e2e -count 1 -p 3 -parallel 4 \
	    -run "^($$(echo $$tests | tr ' ' '|'))$$" $$own || true; } | $(SHOW) -v ) || failed=1; done; exit $${failed:-0}

.PHONY: scale
scale: servers ## A thousand gated Canaries at once, some minutes
	E2E_GATED=1000 go test -tags e2e -count 1 -v -timeout 20m -run TestManyGatedCanaries ./controller/e2e

# What make e2e builds first, so that no test's time goes into it.
SERVERS ?= lab prometheus jaeger
.PHONY: servers
servers: ## Build the lab, Prometheus and the other servers the tests and the demo use, once
	@go run ./deploy/servers/cmd/servers build $(SERVERS)

.PHONY: test
test: ## Everything: lint, unit, e2e; the last line counts the tests
	@mkdir -p $(CACHE); counts=$$(mktemp $(CACHE)/counts.XXXXXX); trap 'rm -f "$$counts"' EXIT; \
	for t in servers lint unit e2e; do $(MAKE) $$t COUNTS="$$counts" || { failed="$${failed:-} $$t"; \
	  case $$t in servers|lint) echo '0 passed, 1 failed, 0 skipped' >>"$$counts";; esac; }; done; \
	[ -z "$${failed:-}" ] || echo "failed:$$failed"; \
	$(SUMMARY) -total -counts "$$counts" && [ -z "$${failed:-}" ]

.PHONY: bench
bench: ## Benchmarks of every module
	@for m in $(MODULES); do ( cd "$$m"; \
	  packages=$$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./... 2>/dev/null | while read -r d; do grep -lq '^func Benchmark' "$$d"/*_test.go && echo "$$d" || true; done); \
	  [ -z "$$packages" ] || go test -run '^$$' -bench . -benchmem $$packages ); done

.PHONY: sim
sim: ## Simulate the gate beside its peers' rules; writes docs/gate-simulation.md
	go run ./controller/gate/sim -seed 1 -out docs/gate-simulation.md

.PHONY: demo
demo: ## A release from start to finish on a lab of its own; DEMO=once ends by itself
	@mkdir -p bin; go build -o bin/demo ./deploy/demo
	@exec bin/demo $(if $(filter once,$(DEMO)),--once) \
	  $(if $(OWN),--kubeconfig '$(KUBECONFIG)') $(DEMO_FLAGS)

.PHONY: lab
lab: ## A real control plane without containers, until Ctrl-C; prints its kubeconfig
	@lab=$$(go run ./deploy/servers/cmd/servers build lab); exec "$$lab" up $(LAB_FLAGS)

$(SUMMARY): tools/go.mod $(wildcard tools/testsummary/*.go)
	@mkdir -p $(TOOLS); cd tools && go build -o $@ ./testsummary

$(TOOLS)/.built: tools/go.mod tools/go.sum $(wildcard tools/lint/*.go tools/vetalone/*.go)
	@mkdir -p $(TOOLS); cd tools && go build -o $(TOOLS)/ ./lint ./vetalone $$(go list tool) && touch $@
