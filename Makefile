.DEFAULT_GOAL := help
IMAGE_CONTEXT := deploy/image
CERTIFICATES := /etc/ssl/certs/ca-certificates.crt

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

build: ## Build ./millrace
	CGO_ENABLED=0 go build -trimpath -o millrace ./cmd/millrace

image-context: ## Fill deploy/image, from which deploy/Dockerfile makes an image
	mkdir -p $(IMAGE_CONTEXT)/data
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o $(IMAGE_CONTEXT)/millrace ./cmd/millrace
	cp $(CERTIFICATES) $(IMAGE_CONTEXT)/ca-certificates.crt

release: ## Build archives, packages, clients, SBOMs and checksums of the commit into dist
	cd deploy && go run ./release -root .. -out ../dist $(RELEASE)

demo: ## Run the main job on embedded defaults
	go run ./cmd/millrace demo

test: ## Run the tests; what needs a server that is not there is skipped
	go test -timeout 30m ./...

race: ## Run the tests with the race detector
	go test -race -timeout 60m ./...

ci: ## What CI runs: installs and starts what is missing, skips nothing
	bash .ci/run

lint: ## Format, vet and staticcheck
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.7.0 ./...

fuzz: ## Run every fuzz target for FUZZTIME (10s)
	@for p in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -h '^func Fuzz' $$p/*_test.go | sed 's/func \(Fuzz[A-Za-z0-9_]*\).*/\1/'); do \
	    go test -run '^$$' -fuzz "^$$f$$" -fuzztime $${FUZZTIME:-10s} ./$$p || exit 1; done; done

bench: ## Compare with peers and floors (docs/performance.md)
	cd bench && go run .

.PHONY: help build image-context release demo test race ci lint fuzz bench
