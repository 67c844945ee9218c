// Package server puts one node together: the engine of all contracts, its duties, and the listeners
// they are served on.
//
//	New     takes a store and the rooms of the contracts; nothing runs yet
//	Listen  opens the listeners, so that whoever starts the node learns at once when an address is taken
//	Run     serves until its context ends, then stops gracefully within the grace
//
// Each room is served on the common listener or on one of its own. /health answers on all of them,
// /metrics on the common one; everything else outside the rooms is a 404 in plain text.
//
// A room may also run jobs by itself and take the messages of its contracts' outbox; see room.go.
//
// Stopping (G-X-13): readiness fails, listeners close, long polls are woken and answer
// empty-handed, requests and runs under way end within the grace, the duties end, the store is
// closed. Runs of workers outside the process are left alone (G-X-21): their leases are in the
// store and go on.
package server
