// Package handler defines what a job type of FetchBox can customise: it may change a manifest
// before tasks are made of it, make the tasks itself, choose the key of each object, and run code
// when a job has ended.
//
//	submit   Prepare ─► Tasks ─► Adjust, of all tasks
//	attempt                      Adjust, also for the task of a direct producer
//	end      Finalize, once
//
// Handlers are compiled in and registered by name in Registry, or are programs outside of this one
// (External); docs/handlers.md shows how to write them. A job type whose settings name none has
// Default, which uses the manifest as it is.
package handler
