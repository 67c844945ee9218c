// Command torture starts real servers, loads them through their public interfaces while a nemesis
// kills, stops and cuts them off, and audits afterwards what they have promised. It shares no code
// with the server: what it believes comes from its own ledger, from the HTTP API and from SQL.
//
//	load generators, workers ──HTTP──▶ nodes ──proxy──▶ SQLite or PostgreSQL
//	     │                               ▲                   ▲
//	  ledger (a line before a request,   nemesis: a schedule made from the seed
//	     │    one after its answer)
//	     ▼
//	audit: heal, drain, read by API, read by SQL, check the invariants, one verdict
//
// The load is on all contracts: Relay, TaskFlow with its graphs and the worker API, ForgeRun with
// webhooks, FetchBox and Images. Several nodes have the last two where -s3 names an S3 server. It
// fails with -only s3, and the NATS server beside it with -only streams. With -batch many jobs of
// Relay and TaskFlow come, and end, in one request. On PostgreSQL transactions of callers submit
// jobs and end runs too.
//
// A request is ok, failed, or unknown: it may or may not have been carried out, for ever. The audit
// counts as a violation only what no order of the unknown requests explains.
//
//	go run ./torture -store sqlite -seed 7          one run; exit code 1 on a violation
//	go run ./torture -store postgres -only failover  loses the primary of two PostgreSQL servers
//	go run ./torture -store postgres -only patroni   the same of three that Patroni keeps
//	go run ./torture -prove                         runs every seeded bug until it is caught
//	go run ./torture -points all -rounds 20         dies 20 times at each crash point
//
// Seeded bugs (bugs/) are changes of the server's source, applied by the overlay of go build: the
// product has no code for them, and one that no longer applies is an error. Crash points (points/)
// are inserted in the same way: places at which a server is made to die. docs/reliability.md has
// the invariants, the figures and their limits.
package main
