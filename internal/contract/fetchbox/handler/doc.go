// Package handler is what a job type of FetchBox may do differently: change a manifest before tasks
// are made of it, make them in its own way, put each file where it wants it, and hear of the end.
//
// Handlers are compiled in and known by name, see Registry; docs/handlers.md shows how one is
// written. A job type whose settings name none has Default, which takes the manifest as it is.
package handler
