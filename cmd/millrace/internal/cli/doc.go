// Package cli holds what every command of millrace shares: the [Process] it runs in, the flags of
// commands that talk to a server, exit codes, progress, and child processes of the same binary.
//
// A command touches nothing of the operating system but through its Process, so that a test runs
// the same command with buffers in the place of files. It returns an error that carries its exit
// code (see [WithCode]); main alone writes the error and ends the process.
package cli
