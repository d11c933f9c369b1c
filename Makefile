# Plain make and bash. Variables are set here and on make's command line, never by the environment: a stray PKG in
# a developer's shell must not narrow what "make check" checks.

SHELL = /bin/bash

GOFUMPT_VERSION       = v0.12.0
GOLANGCI_LINT_VERSION = v2.13.2
GOTESTSUM_VERSION     = v1.13.0
CADDY_VERSION         = v2.11.7
ENVOY_VERSION         = v1.40.0
RATELIMIT_VERSION     = v1.4.1-0.20260122083618-3fb702589d36
SQLC_VERSION          = v1.31.1
HELM_VERSION          = v3.22.0
HELM4_VERSION         = v4.3.1
HELM_UNITTEST_VERSION = v1.1.2
KUBECTL_VALIDATE_VERSION = v0.0.4
KUSTOMIZE_VERSION     = v5.8.1
KUBERNETES_VERSION    = v1.36.3
ETCD_VERSION          = v3.6.8
GORELEASER_VERSION    = v2.16.0

PKG      = ./...
RUN      =
FUZZTIME = 10s
SUITE    =
SHORT    =
FROM     =
VERSION  =
ARGS     =

GOFUMPT       = $(CURDIR)/.bin/gofumpt-$(GOFUMPT_VERSION)
GOLANGCI_LINT = $(CURDIR)/.bin/golangci-lint-$(GOLANGCI_LINT_VERSION)
GOTESTSUM     = $(CURDIR)/.bin/gotestsum-$(GOTESTSUM_VERSION)
CADDY         = $(CURDIR)/.bin/caddy-$(CADDY_VERSION)
ENVOY         = $(CURDIR)/.bin/envoy-$(ENVOY_VERSION)
RATELIMIT     = $(CURDIR)/.bin/ratelimit-$(RATELIMIT_VERSION)
SQLC          = $(CURDIR)/.bin/sqlc-$(SQLC_VERSION)
HELM          = $(CURDIR)/.bin/helm-$(HELM_VERSION)
HELM4         = $(CURDIR)/.bin/helm4-$(HELM4_VERSION)
HELM_UNITTEST = $(CURDIR)/.bin/helm-unittest-$(HELM_UNITTEST_VERSION)
KUBECTL_VALIDATE = $(CURDIR)/.bin/kubectl-validate-$(KUBECTL_VALIDATE_VERSION)
KUSTOMIZE     = $(CURDIR)/.bin/kustomize-$(KUSTOMIZE_VERSION)
KUBERNETES    = $(addsuffix -$(KUBERNETES_VERSION),$(addprefix $(CURDIR)/.bin/,kube-apiserver kube-controller-manager kube-scheduler))
ETCD          = $(CURDIR)/.bin/etcd-$(ETCD_VERSION)
GORELEASER    = $(CURDIR)/.bin/goreleaser-$(GORELEASER_VERSION)
SQLC_CONFIG   = internal/server/pgrules/sqlc.yaml

# Modules of their own, so that what they depend on is not what the main module depends on.
MODULES = bench examples/frameworks examples/istio examples/streams tools/package

# -p 2: packages start servers of their own, and more of them at once only slow each other down.
GOTESTARGS = --format pkgname --format-hide-empty-pkg -- -timeout 20m -p 2 -run '$(RUN)'
GOTEST     = $(GOTESTSUM) $(GOTESTARGS) -shuffle=on

.PHONY: help deps servers build test test-long race fuzz compare bench chaos adversary demo-budget attack fixture upgrade e2e e2e-control e2e-metrics e2e-regions sim-regions soak lint fmt proto sql quickstart check package demo chart chart-files e2e-kube site
.NOTPARALLEL:

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' Makefile

deps: servers $(GOFUMPT) $(GOLANGCI_LINT) $(GOTESTSUM) $(SQLC) $(CADDY) $(ENVOY) $(RATELIMIT) $(HELM) $(KUBECTL_VALIDATE) ## Install servers (Debian 12), tools and modules; quick when they are there
	@tools/deps.sh modules

servers:
	@tools/deps.sh servers

build: ## Compile every package, bench and examples included
	go build -o /dev/null ./...
	@set -ex; for dir in $(MODULES); do (cd $$dir && go build -o /dev/null ./...); done

# In a fixed order, so that the go command may answer for packages that have not changed.
test: $(GOTESTSUM) ## Run the quick tests: no more than one Redis each; PKG=./memstore and RUN=TestName narrow them
	@$(GOTESTSUM) --hide-summary=skipped $(GOTESTARGS) -short $(PKG)

test-long: $(GOTESTSUM) ## Run all tests, the long ones too; PKG and RUN as above
	@$(GOTEST) $(PKG)

race: $(GOTESTSUM) ## Run all tests, as test-long does, under the race detector, those of bench and examples first; PKG and RUN as above
	@set -e; if [ '$(PKG)' = ./... ]; then for dir in $(MODULES); do (cd $$dir && $(GOTEST) -race ./...); done; fi
	@$(GOTEST) -race $(PKG)

# Go before 1.27 may report the end of -fuzztime itself as a failure: a bare "context deadline exceeded" and no input
# written. That is a race in the fuzzing engine, and only that is forgiven here.
fuzz: ## Fuzz each target for FUZZTIME (default 10s); PKG narrows
	@set -eo pipefail; \
	targets=$$(go test -list '^Fuzz' $(PKG) | awk ' \
		/^Fuzz/ { names[n++] = $$1; next } \
		/^ok/ { for (i = 0; i < n; i++) print $$2, names[i]; n = 0; next } \
		!/^\?/ { print > "/dev/stderr" }'); \
	log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	failed=; \
	while read -r pkg name; do \
		[ -n "$$name" ] || continue; \
		echo "$$name in $$pkg"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$pkg" </dev/null 2>&1 | tee "$$log" && continue; \
		if grep -A 1 '^--- FAIL: ' "$$log" | grep -qx '    context deadline exceeded' && ! grep -q 'Failing input' "$$log"; then \
			echo "no finding: the fuzzing engine stumbled over its own deadline"; \
		else \
			failed="$$failed $$name"; \
		fi; \
	done <<<"$$targets"; \
	if [ -n "$$failed" ]; then echo "fuzz: failed:$$failed"; exit 1; fi

compare: $(GOTESTSUM) ## Compare each store with the specification at length: 200,000 charges per algorithm and topology, a million operations on holds
	@HEADGATE_COMPARISON=200000 HEADGATE_HOLD_OPERATIONS=1000000 $(GOTEST) -count=1 -timeout 60m -run 'TestSuite|TestSmallChunks|TestHoldsBalance|TestMutations' \
		./memstore ./redisstore

bench: ## Run a benchmark suite: SUITE=store, ARGS='...' for its flags
	@suites=$$(grep -ls '^package main$$' bench/*/*.go | xargs -r -n 1 dirname | xargs -r -n 1 basename | sort -u); \
	if ! grep -qxF -- '$(SUITE)' <<<"$$suites" || [ -z '$(SUITE)' ]; then \
		echo "usage: make bench SUITE=<suite> [ARGS='<flags>'], where <suite> is one of:" $${suites:-(none yet)} >&2; \
		exit 2; \
	fi; \
	cd bench && go run ./$(SUITE) $(ARGS)

chaos: ## Break Redis under real servers and judge what callers see; SHORT=1 for some of the faults, ARGS='...' for its flags
	@cd bench && go run ./chaos $(if $(SHORT),-short) $(ARGS)

adversary: ## Attack the default mode with several processes, and judge histories by a model of its own; SHORT=1 for fewer runs, ARGS='...' for its flags
	@cd bench && go run ./adversary $(if $(SHORT),-short) $(ARGS)

demo: $(ENVOY) ## Run what deploy/compose runs, without containers: two nodes, Redis, PostgreSQL, Envoy, Prometheus; docs/demo.md continues from there
	@cd bench && go build -o out/ ./demo && exec out/demo

demo-budget: ## Spend a budget on streams of a language model, behind Headgate and behind Envoy, while parts are killed; SHORT=1 for less, ARGS='...' for its flags
	@cd bench && go run ./budget $(if $(SHORT),-short) $(ARGS)

attack: $(GOTESTSUM) ## Try every way round a limit that worked once, and its neighbours: all tests that docs/security.md names; "make check" tries fewer
	@cd bench && HEADGATE_ATTACK=long $(GOTESTSUM) --format standard-verbose -- -count=1 -timeout 20m -run '$(RUN)' ./attack
	@if [ -z '$(RUN)' ]; then \
		$(GOTESTSUM) --format testname --format-hide-empty-pkg -- -count=1 -p 2 \
			-run "^($$(grep -oE 'Test[A-Za-z]+' docs/security.md | sort -u | paste -sd '|'))\$$" ./...; \
	fi

soak: ## Break Redis again and again for ten minutes, or SHORT=1 30 seconds, and see whether servers grow
	@cd bench && go run ./chaos -soak $(if $(SHORT),30s,10m)

fixture: ## Record what the release VERSION stores in Redis, in PostgreSQL and on disk; all later versions must read it
	@go test ./cmd/headgate -count=1 -run '^TestStoredFormats$$' -record '$(or $(VERSION),$(error usage: make fixture VERSION=1.2.3))'

# git archive, so that neither the work tree nor the repository changes.
upgrade: $(GOTESTSUM) ## Upgrade servers of release FROM, by default the last one, to this tree under load, and roll them back
	@set -eo pipefail; from='$(FROM)'; \
	if [ -z "$$from" ]; then from=$$(sed -nE 's/^## [0-9.]+, .*commit ([0-9a-f]{40}).*/\1/p' CHANGELOG.md | head -n 1); fi; \
	if [ -z "$$from" ]; then echo 'upgrade: no release in CHANGELOG.md: make upgrade FROM=REVISION' >&2; exit 2; fi; \
	dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	git archive "$$from" | tar -x -C "$$dir"; \
	(cd "$$dir" && go build -o headgate-before -ldflags="-X main.version=before" ./cmd/headgate); \
	HEADGATE_UPGRADE_FROM=$$dir/headgate-before $(GOTESTSUM) --format standard-verbose -- -count=1 -timeout 20m -run '^TestUpgrade$$' ./cmd/headgate

e2e: $(GOTESTSUM) ## Try the examples with real gateways
	@$(GOTEST) -count=1 ./internal/e2e

e2e-control: ## Change rules in PostgreSQL, and break it, under real servers; SHORT=1 for less of it, ARGS='...' for its flags
	@cd bench && go run ./control $(if $(SHORT),-short) $(ARGS)

sim-regions: ## Simulate regions that share limits over a bad network: 3,000 random scenarios per algorithm
	@HEADGATE_SCENARIOS=3000 go test -count=1 -timeout 60m -v -run 'TestNeverExceeded|TestUtilisation|TestMove|TestPartition|TestFewMessages' ./internal/region

e2e-regions: ## Share limits between three regions over a bad network, kill servers and stores, and judge what callers saw; as root; SHORT=1 for 2 seeds, ARGS='...' for its flags
	@cd bench && go run ./regions $(if $(SHORT),-short) $(ARGS)

e2e-metrics: ## Have a real Prometheus watch real servers in trouble: dashboard, alerts, number of series; SHORT=1 for less of it
	@cd bench && go run ./metrics $(if $(SHORT),-short)

# The short form needs tools that build in about three minutes on two cores; the full form builds four more.
chart: $(HELM) $(KUBECTL_VALIDATE) $(if $(SHORT),,$(HELM4) $(HELM_UNITTEST) $(KUSTOMIZE)) ## Test the Helm chart and the manifests: render all pairs of values, validate, run the server with them; SHORT=1 for Helm 3 only
	@HEADGATE_CHART=$(if $(SHORT),short,full) go test -count=1 -timeout 30m -run '$(RUN)' ./internal/charttest

chart-files: $(HELM) ## Write what is derived for the chart: its schema, its table of values, copies, and deploy/kubernetes
	@HEADGATE_CHART=short go test -count=1 -run 'TestMonitoringFiles|TestConfigSchema|TestReadme|TestManifests' ./internal/charttest -update

e2e-kube: $(HELM) $(HELM4) $(KUBERNETES) $(ETCD) ## Install, upgrade and roll back the chart on a real control plane; builds Kubernetes once, about 20 minutes
	@HEADGATE_CHART=e2e go test -count=1 -timeout 20m -v -run TestCluster ./internal/charttest

lint: $(GOFUMPT) $(GOLANGCI_LINT) $(SQLC) ## Check formatting, lint, go.mod's tidiness, and that "make sql" would change nothing
	@files=$$($(GOFUMPT) -l .) || exit; \
	if [ -n "$$files" ]; then printf 'not formatted (make fmt):\n%s\n' "$$files"; exit 1; fi
	@set -e; for dir in . $(MODULES); do \
		(cd $$dir && $(GOLANGCI_LINT) run ./... && go mod tidy -diff); \
	done
	@$(SQLC) diff -f $(SQLC_CONFIG) || { echo 'generated code differs: make sql'; exit 1; }

fmt: $(GOFUMPT) ## Format every Go file
	@$(GOFUMPT) -l -w .

proto: ## Lint proto/ and generate its Go code; needs npm
	@tools/proto.sh

sql: $(SQLC) ## Generate the Go code of internal/server/pgrules/queries.sql
	@$(SQLC) generate -f $(SQLC_CONFIG)

quickstart: ## Do what the README says under "The first 429", and compare; ARGS='docs/two-nodes.md' for what pages say
	@go run ./tools/quickstart $(ARGS)

site: ## Build the documentation site of docs/ into site/out; needs npm, and fails on dead links
	@cd site && npm ci --no-fund --no-audit && npm run build

package: $(if $(SHORT),,$(GORELEASER)) ## Build what a release consists of, install or unpack each artefact, run it, and send it six requests; as root; SHORT=1 for binary, deb and image of amd64
	@cd tools/package && go run . $(if $(SHORT),-short)

# The race tests come last, so that their summary is what the reader is left with.
check: ## What CI runs: build, lint, fuzz for a moment, the README's first lines, some faults, packages, race tests
	@set -e; \
	step() { \
		echo "=== $$*"; \
		start=$$SECONDS; \
		$(MAKE) --no-print-directory "$$@"; \
		echo "=== $$1 took $$((SECONDS - start)) s"; \
	}; \
	step build; \
	step lint; \
	step fuzz FUZZTIME=1s; \
	step quickstart; \
	step chart SHORT=1; \
	step chaos SHORT=1; \
	step adversary SHORT=1; \
	step demo-budget SHORT=1; \
	step soak SHORT=1; \
	step e2e-control SHORT=1; \
	step e2e-metrics SHORT=1; \
	step e2e-regions SHORT=1; \
	step package SHORT=1; \
	echo "=== race"; \
	$(MAKE) --no-print-directory race

$(GOFUMPT):
	@tools/deps.sh tool gofumpt $(GOFUMPT_VERSION) mvdan.cc/gofumpt

$(GOLANGCI_LINT):
	@tools/deps.sh tool golangci-lint $(GOLANGCI_LINT_VERSION) github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(GOTESTSUM):
	@tools/deps.sh tool gotestsum $(GOTESTSUM_VERSION) gotest.tools/gotestsum

$(CADDY):
	@tools/deps.sh tool caddy $(CADDY_VERSION) github.com/caddyserver/caddy/v2/cmd/caddy

# What we compare ourselves with.
$(RATELIMIT):
	@tools/deps.sh tool ratelimit $(RATELIMIT_VERSION) github.com/envoyproxy/ratelimit/src/service_cmd

# Without cgo its SQL parser is WebAssembly instead of minutes of C, and the generated code is the same. So it takes about
# 100 seconds on two cores, once for a machine.
$(SQLC):
	@CGO_ENABLED=0 tools/deps.sh tool sqlc $(SQLC_VERSION) github.com/sqlc-dev/sqlc/cmd/sqlc

$(HELM):
	@tools/deps.sh tool helm $(HELM_VERSION) helm.sh/helm/v3/cmd/helm

$(HELM4):
	@tools/deps.sh tool helm4 $(HELM4_VERSION) helm.sh/helm/v4/cmd/helm

$(HELM_UNITTEST):
	@tools/deps.sh copy helm-unittest $(HELM_UNITTEST_VERSION) github.com/helm-unittest/helm-unittest ./cmd/helm-unittest

$(KUBECTL_VALIDATE):
	@tools/deps.sh tool kubectl-validate $(KUBECTL_VALIDATE_VERSION) sigs.k8s.io/kubectl-validate

$(KUSTOMIZE):
	@tools/deps.sh tool kustomize $(KUSTOMIZE_VERSION) sigs.k8s.io/kustomize/kustomize/v5

$(KUBERNETES): $(CURDIR)/.bin/%-$(KUBERNETES_VERSION):
	@tools/deps.sh copy $* $(KUBERNETES_VERSION) k8s.io/kubernetes ./cmd/$*

$(ETCD):
	@tools/deps.sh copy etcd $(ETCD_VERSION) go.etcd.io/etcd/server/v3 .

# Takes about three minutes on two cores: only the full form of "make package" needs it.
$(GORELEASER):
	@CGO_ENABLED=0 tools/deps.sh tool goreleaser $(GORELEASER_VERSION) github.com/goreleaser/goreleaser/v2

$(ENVOY):
	@tools/deps.sh envoy $(ENVOY_VERSION)
