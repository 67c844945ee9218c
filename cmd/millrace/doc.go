// Command millrace is the whole of Millrace: the server, and the tools that talk to one.
//
// It is the one place that names the drivers, reads the environment, takes the clock and lists the
// contracts (rooms.go): a sixth contract is its folder and a line there. There is one file for each
// subcommand; what a command may touch of the outside is handed to it (process.go), and how it may
// end is in exit.go.
package main
