// Package server puts one node together: the engine of all contracts, its maintenance, and the
// listeners that serve the contracts.
//
//	New     builds the engine, mounts the contracts and prepares the listeners; nothing runs yet
//	Listen  opens the listeners, so that a node whose address is in use fails at its start
//	Run     serves until its context ends, then stops gracefully within the grace
//
// Each contract is served on the common listener or on one of its own. /health is served on all of
// them, /metrics on the common one; every path outside the contracts is a 404 in plain text. A
// contract may also run jobs in the background and publish the messages of its outbox; package
// contract lists what it may offer.
//
// A graceful stop (G-X-13) has this order:
//
//	readiness fails
//	listeners close, long polls wake and answer without a job
//	requests and attempts under way finish, within the grace
//	maintenance ends, after it has published what the last attempts wrote
//	the store is closed
//
// Attempts of remote workers are left alone (G-X-21): their leases are in the store and continue.
package server
