// Package account stores clients, their API keys and secrets, authenticates requests and enforces
// rate limits and quotas.
//
// A key reads
//
//	mr_<key id: 32 hex digits>_<43 base62 digits: 32 random bytes><6 base62 digits: crc32>
//
// so a mistyped key is refused without reading the store, and scanners for leaked secrets recognise
// one. The store holds an HMAC of the key under the pepper, a secret of the operator that is not in
// the store. A copy of the store can therefore neither be used to call the API nor to test guesses.
//
// A client has at most one key that is not revoked:
//
//	       first key (no credentials)          renew, rotate, recover: a new key
//	no key ───────────────────────────► active ───────────────┐
//	                                    │   ▲ └───────────────┤ the old one
//	                             revoke │   └─ recover ─┐     ▼
//	                                    └───────────► revoked, kept for audit
//
// Every change of a client and its keys runs under the client's lock, so of many callers that race
// for the first key exactly one gets it (FR-045).
//
// A key that was read is cached for a second at most, which is how long a revocation takes to reach
// the other nodes; the node that revokes a key drops it at once (cache.go).
//
// Limits are fixed windows by the store's clock. A node leases a few requests of a window at a time
// from a record that all nodes share (limit.go, window.go):
//
//	record of the window        node A leases 8, then 8, then 16 …
//	limit 600, used 40     ◄──  node B leases 8
//
// So most requests do not touch the store, and all nodes together never grant more than the limit.
// They may grant less, by the requests that nodes have leased and not used: per node at most 8, or
// as many as it has granted in this window, and never more than a twentieth of the limit.
package account
