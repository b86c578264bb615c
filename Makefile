SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

GO ?= go
RACE ?= -race
# Counts: a fuzz target that runs until a time now and then fails with nothing but its deadline.
FUZZTIME ?= 20000x
# Only for what hangs: on a busy machine the longest package takes several times its ten minutes.
TESTTIME ?= 2h
# lint has vetted the tests.
TESTFLAGS = -count=1 -vet=off -timeout=$(TESTTIME)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# All packages of the modules that go.work names.
PACKAGES := ./... ./bench/... ./contrib/otel/... ./contrib/prometheus/... ./internal/simulation/... ./internal/thirdparty/...
DETERMINISTIC := internal/simulation/host
LONGEST := ./lock ./internal/conformance ./cluster
# Tested without the race detector: their tests read files, build programs, simulate, walk through models, or measure, and take several times as long with it.
UNRACED := ./internal/policy ./internal/pictures ./internal/lockscripts ./internal/thirdparty/... ./internal/simulation ./internal/simulation/museum ./lock/internal/kinds/... ./bench/...

# The programs that tests against real servers run. Empty is the one in PATH, or what LOCKWIRE_REDIS_SERVER says; "all" is
# the one in PATH and those of make servers; anything else is a list of paths with commas.
SERVERS ?=
ifeq ($(SERVERS),all)
SERVER_LIST = $(shell { command -v redis-server || command -v valkey-server; ls '$(CURDIR)'/.servers/*/redis-server; } | paste -sd, -)
else
SERVER_LIST = $(SERVERS)
endif

# Systems on which nothing is tested, but the library is built, and the packages with files for a build without TLS are built so, too: one for each
# set of files. The first time a system takes twenty seconds of a processor, most of them for the standard library (half as long again with the
# compiler's optimizations).
SYSTEMS := plan9/amd64 freebsd/amd64 openbsd/amd64 js/wasm wasip1/wasm linux/386
LIBRARY := . ./resp ./conn ./script ./pubsub ./cluster ./lock ./lock/leader ./lock/locktest ./lock/fence
WITHOUT_TLS = $(shell grep -rlE --include='*.go' --exclude='*_test.go' '^//go:build .*lockwire_notls' . | xargs -n1 dirname | sort -u)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## workers contend for a lock, one is killed; needs no Redis, or REDIS=redis://... for a real one
	@$(GO) run ./bench/demo $(if $(REDIS),-redis '$(REDIS)')

.PHONY: why
why: ## why a job waits: the log, a trace and the metrics of three processes; needs redis-server, or REDIS=redis://...
	@$(GO) run ./bench/why $(if $(REDIS),-redis '$(REDIS)')

.PHONY: test
test: install $(if $(filter all,$(SERVERS)),servers) lint ## all checks and tests, installing what they need; SERVERS=all for every server, RACE= without a C compiler
	@FUZZTIME=$(FUZZTIME) .ci/fuzz
	@# What is promised about allocations: the race detector adds some of its own. And who has which share of a lock, in a hundred thousand turns.
	$(GO) test $(TESTFLAGS) -run='Alloc|Share' $$(grep -rlE --include='*_test.go' '^func Test\w*(Alloc|HasItsShare)' . | xargs -n1 dirname | sort -u)
	$(GO) test $(TESTFLAGS) -tags=lockwire_notls ./internal/notls
	@# The deterministic simulation has one thread, so it runs beside the rest; under the race detector its machine takes two minutes more
	@# to start. One package more at once than there are processors, because some wait for servers most of the time; the longest first.
	$(if $(SERVERS),export LOCKWIRE_REDIS_SERVER='$(SERVER_LIST)';) failed=0; \
	{ $(GO) test $(TESTFLAGS) ./$(DETERMINISTIC) && $(GO) test $(TESTFLAGS) -p=1 $(UNRACED); } & unraced=$$!; \
	$(GO) test $(RACE) $(TESTFLAGS) -p=$$(($$(getconf _NPROCESSORS_ONLN) + 1)) \
		$(LONGEST) $$(comm -23 <($(GO) list $(PACKAGES) | sort) <($(GO) list ./$(DETERMINISTIC) $(UNRACED) | sort)) || failed=1; \
	wait $$unraced && exit $$failed

.PHONY: exhaustive
exhaustive: install ## every transition of every script's model against a server, of which make test takes a sample; SERVERS as there
	$(if $(SERVERS),LOCKWIRE_REDIS_SERVER='$(SERVER_LIST)') LOCKWIRE_EXHAUSTIVE=1 CI=true \
		$(GO) test -run='^TestServerScript(s|Faults)$$|LikeTheServer$$' -count=1 -timeout=$(TESTTIME) -v ./lock/internal/kinds

.PHONY: torture
torture: install ## what is tested under load and faults, for longer: TORTURE=30s each; SERVERS as there
	$(if $(SERVERS),LOCKWIRE_REDIS_SERVER='$(SERVER_LIST)') LOCKWIRE_TORTURE=1 LOCKWIRE_TORTURE_TIME=$(or $(TORTURE),30s) CI=true \
		$(GO) test $(RACE) -run='Torture|TestContention|TestFailovers|TestServer(Migration|KillMaster|RollingRestart)|TestLocks|TestRedlock(AnyTwo|Storm)' \
		-count=1 -timeout=2h -v ./conn ./lock ./cluster ./internal/conformance ./internal/locktorture

.PHONY: simulate
simulate: ## the seeded simulation, deterministic: SEEDS=1000 of them and a table, or SEED=17 and its history; BRIEF=1 as in make test
	@$(GO) run ./internal/simulation/host $(if $(BRIEF),-brief) $(if $(SEED),-seed=$(SEED),-seeds=$(or $(SEEDS),100) $(if $(FIRST),-first=$(FIRST)))

.PHONY: explore
explore: ## the seeded simulation, fast, with another schedule in each run: SEEDS=500 of them from FIRST=1001 and a table; BRIEF=1
	@$(GO) run ./internal/simulation/host -native $(if $(BRIEF),-brief) -seeds=$(or $(SEEDS),500) -first=$(or $(FIRST),1001)

.PHONY: museum
museum: ## the simulation against code with known faults: each must be found; ONLY=pattern, SEEDS=1000 at most for each
	@$(GO) run ./internal/simulation/museum $(if $(ONLY),-only='$(ONLY)') -seeds=$(or $(SEEDS),1000)

.PHONY: install
install: # a server, a proxy and the C compiler that -race needs, if they are missing
	@.ci/install-missing $(if $(RACE),compiler) $(if $(filter-out all,$(SERVERS)),,server) proxy

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, and a build for other systems
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .); \
	[ -z "$$unformatted" ] || { echo "gofmt would change:" $$unformatted >&2; exit 1; }
	$(GO) vet $(PACKAGES)
	$(GO) run $(STATICCHECK) $(PACKAGES)
	GOOS=darwin CGO_ENABLED=0 $(GO) build -gcflags='all=-N -l' ./...
	GOOS=windows CGO_ENABLED=0 $(GO) build -gcflags='all=-N -l' ./...
	@for target in $(SYSTEMS); do \
		export GOOS=$${target%/*} GOARCH=$${target#*/} CGO_ENABLED=0; \
		$(GO) build -gcflags='all=-N -l' $(LIBRARY) && $(GO) build -gcflags='all=-N -l' -tags=lockwire_notls $(WITHOUT_TLS) || \
			{ echo "does not build on $$target" >&2; exit 1; }; done

.PHONY: fuzz
fuzz: FUZZTIME = 500000x
fuzz: ## each fuzz target for FUZZTIME=500000x inputs, or a time (1m)
	@FUZZTIME=$(FUZZTIME) .ci/fuzz

# etcd's client is built in only where there is a server for it: it is larger than all the rest.
BENCH_FLAGS = $(if $(shell command -v etcd),-tags=etcd)

.PHONY: bench
bench: install ## lockwire beside its peers, into bench/RESULTS.md; ONLY=get,lock-own for some cases, ROUNDS=5
	$(GO) run $(BENCH_FLAGS) ./bench -readme bench/README.md $(if $(ONLY),-only '$(ONLY)') $(if $(ROUNDS),-rounds $(ROUNDS))

.PHONY: bench-list
bench-list: ## what make bench measures
	@$(GO) run $(BENCH_FLAGS) ./bench -list

.PHONY: bench-go
bench-go: ## the benchmarks beside the code, or BENCH=pattern
	$(GO) test -run='^$$' -bench='$(or $(BENCH),.)' -benchmem $(PACKAGES)

.PHONY: servers
servers: ## fetch Redis 6.0 and 8.0, Valkey 8.0 and 9 into .servers, for make test SERVERS=all
	@.ci/fetch-servers .servers
