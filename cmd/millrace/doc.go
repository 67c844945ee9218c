// Command millrace is the whole of Millrace: the server, and the tools that talk to one.
//
// It is the only package that names storage drivers, reads the environment, and lists the
// contracts. A sixth contract is a folder of its own and an entry in contracts.go.
//
// The files of serve read in this order:
//
//	serve.go          the command, and the steps of a start and of a stop
//	contracts.go      the list of the contracts, and deps, from which they are built
//	store.go          SQLite or PostgreSQL; storage.go: objects and streams
//	admin.go          the admin API, and the link to the console that a start prints
//	outages.go        which parts of a node may be unavailable, and how the log names them
//	former_terms.go   the end of the terms of a process that was killed on this data directory
//	serve_greet.go    what a started server prints
//
// The other files are commands. config (settings.go), migrate, backup, restore (backup.go), export
// and operator recover run on the settings and the store, and need no server; migrate has move.go
// for a move to another database; picture is the child process of Images. operator token and login
// (operator.go) find the server by the settings.
//
// Commands that use a server are packages under internal, each with the name of its command. What
// all commands share is in internal/cli. A command touches
// the operating system only through its [cli.Process], and returns an error that carries its exit
// code ([cli.ExitError]); only main ends the process.
package main
