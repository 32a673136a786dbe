# make run   the whole platform on this machine, with its demo sales
# make test  linters and every test; starts and stops all it needs
# make bench the gates of speed
# make rush  a crowd of 20,000
# make chaos a hundred thousand random operations on one sale, while functions die
# make build, make lint, make setup

SHELL := /bin/sh
export GOFLAGS := -buildvcs=false $(GOFLAGS)
unexport HOLDFAST_SECRETS

DATA ?= $(CURDIR)/.holdfast
PORT ?= 8080
TESTS ?= ./...

.PHONY: run test bench rush chaos build lint tools setup setup-run setup-test clean

run: setup-run build
	bin/holdfast up --demo --data '$(DATA)' --port $(PORT)

test: setup-test build lint
	cd tools && go test ./...
	HOLDFAST_TEST_BINARY='$(CURDIR)/bin/holdfast' bin/testrun -skips tests/skips.txt -- -timeout 30m $(TESTS)

# One after another: they measure, and must not disturb each other.
bench: setup-run build
	bin/holdfast bench hold
	bin/holdfast bench confirm
	bin/holdfast bench join
	bin/holdfast bench poll
	bin/holdfast bench map
	bin/holdfast bench standby-first
	bin/holdfast bench match

rush: setup-run build
	bin/holdfast rush --people 20000 --window 20s --seats 1000 --party 2 --hold 20s

# One seed again: make chaos CHAOS=-chaos.seed=N
chaos: setup-test
	go test ./tests/chaos -run TestChaos -v -timeout 30m -chaos.ops=100000 $(CHAOS)

build:
	go build -o bin/holdfast ./cmd/holdfast

# gofmt, go vet, staticcheck, and the arrows between packages.
lint: tools
	@files=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go' 2>/dev/null || find . -name '*.go')); \
	if [ -n "$$files" ]; then echo "gofmt -w these files:"; echo "$$files"; exit 1; fi
	go vet ./...
	bin/staticcheck ./...
	bin/arrows

tools:
	cd tools && go build -o ../bin/ ./arrows ./testrun honnef.co/go/tools/cmd/staticcheck

setup-run:
	tools/setup run

setup-test:
	tools/setup test

setup: setup-test

clean:
	rm -rf bin
