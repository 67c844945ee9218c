// Command millrace is the whole of Millrace: the server, and the tools that talk to one.
//
// It is the only package that names storage drivers, reads the environment and the clock, and lists
// the contracts. A sixth contract is a folder of its own and an entry in contracts.go.
//
// Commands that run on the store or the settings have a file of their name here. The files of serve
// read in this order:
//
//	serve.go          the command, and the steps of a start and of a stop
//	contracts.go      deps, from which contract_*.go build the contracts
//	store.go          SQLite or PostgreSQL; storage.go: objects and streams
//	outages.go        which parts of a node may be away, and under which name they are logged
//	serve_greet.go    what a started server prints
//
// Commands that use a server are packages under internal: enqueue, work, graph, fetch, images,
// bench, simulate and demo. What all commands share is in internal/cli. A command touches the
// operating system only through its [cli.Process].
package main
