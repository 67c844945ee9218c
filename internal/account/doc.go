// Package account knows who calls: clients, their API keys, what they may still
// ask for, and the secrets that are kept for them.
//
// A key reads
//
//	mr_<key id: 32 hex digits>_<43 base62 digits: 32 random bytes><6 base62 digits: crc32>
//
// so a mistyped one is refused without a look into the store, and scanners for
// leaked secrets can tell it. The store has an HMAC of it under the pepper, a
// secret of the operator that is not in the store; whoever reads the store can
// neither use the keys nor try out guesses.
//
// A client has at most one key that is not revoked:
//
//	       first key (no credentials)          renew, rotate, recover: a new key
//	no key ───────────────────────────► active ───────────────┐
//	                                    │   ▲ └───────────────┤ the old one
//	                             revoke │   └─ recover ─┐     ▼
//	                                    └───────────► revoked, kept for audit
//
// Every change of a client and its keys runs under the client's lock, so of many
// callers that race for the first key exactly one gets it (FR-045).
//
// What was read of a key is believed for a second at most, which is how long a
// revocation takes to reach the other nodes; on this one it is forgotten at once.
//
// Limits are fixed windows by the store's clock. A node leases a few requests of
// a window at a time from a record that all nodes share, so that most requests
// cost no look into the store, and all nodes together never grant more than the
// limit. They may grant less, by what a node leased and did not use: at most 8
// requests or as many as it has granted in this window, whichever is more, and
// never more than a twentieth of the limit, per node.
package account
