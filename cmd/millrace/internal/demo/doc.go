// Package demo shows on one machine what Millrace does. It starts a server on an empty directory,
// uses one contract after the other and audits each:
//
//	Relay      a job for each file of a folder; one of the workers that measure them is killed
//	TaskFlow   a graph of steps that make a manifest of the files; one step fails at first
//	FetchBox   downloads from a server of the demo's own
//	Images     variants of pictures that the demo draws
//	ForgeRun   some of the work kinds of package simulate
//
// The demo counts every result twice: by what the workers report, and by its own measurement. Exit
// code 0 promises that both counts agree.
//
// A demo that is kept goes on after that: work comes in slowly, for the console to show (keep.go).
//
// Server and workers are children of the demo's process, which end with it however it ends. Their
// data is in a temporary directory, which is removed at the end and after an interruption.
package demo
