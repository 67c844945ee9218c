// Package forgerun is the ForgeRun contract: clients with API keys submit simulated jobs, follow
// them through their states, and get every change in reports and by webhooks.
//
//	     submit
//	       │
//	       ▼      due
//	   CREATED ───────────────────► QUEUED ◄────────────────┐
//	       │                        │  │ ▲                  │
//	cancel │                 cancel │  │ │ lease expired    │ retry, while
//	       │                        │  │ │ before the start │ some are left
//	       │                claimed │  ▼ │                  │
//	       │                        │ ASSIGNED              │
//	       │                 cancel │  │                    │
//	       │                        │  │ started            │
//	       ▼                        ▼  ▼                    │
//	   CANCELED ◄─────── cancel ─── RUNNING ──────────► FAILED
//	                                   │    failed, timed out,
//	                                   │    or its worker was lost
//	                                   └──────────────► SUCCEEDED
//
// ASSIGNED → QUEUED is the one transition that the document forbids in one place and demands in
// another. Only the server makes it, and its event is job_requeued (G-FR-01). All others are the
// document's.
//
// The engine writes a job's row and its history in one transaction. The outcome, the attempt, the
// report and the ids of events are computed from these two, so they cannot disagree (G-FR-34).
//
// A request passes through serve before its handler runs:
//
//	rate limit and API key ──► query, headers, body ──► handler ──► engine, accounts or webhooks
//
// Time, leases, retries, locks and storage are the engine's; clients and keys are account's;
// deliveries are webhook's; the pool that executes jobs is worker's. This package turns a request
// into one call of these, and an attempt into a pause that ends as the catalogue of work kinds
// says.
//
// # A new event of clients' webhooks
//
// Each event is a transition of a job, but for millrace.test (webhook/sample.go). Engine.Change
// makes the transition (change in handlers_jobs.go). Pepper and settings webhook.* are ForgeRun's,
// for operators' webhooks too.
//
//   - Its name is in eventNames and its pair of states in eventName (events.go). The cause is not
//     seen there, and a pair without a case is sent as job_canceled. Names and ids are computed
//     from the history when it is read: another name for an existing pair changes past events too,
//     against FR-150. A new state changes FR-154, and a new pair FR-155 to FR-161; every pair of
//     today has its event.
//   - It is named again in openapi.yaml, docs/webhooks.md, docs/contracts/forgerun.md (the list of
//     FR-153; G-FR-62 has the members of an event), client/forgerun_wire.go (constant, list, and
//     the comments that say when it comes), FORGE_RUN_EVENTS and forgeRunEvents of clients/, which
//     no test asks for, torture/forgerun.go, the drawing above for a transition that the document
//     does not have, and cmd/millrace/internal/simulate/audit.go.
//   - Tests list it: FR-153 in events_test.go, allowed in machine_test.go for a new pair, the flows
//     of read_test.go that meet it and, of cmd/millrace, clientEvents of reference_events_test.go
//     and forgeEvent of webhook_kill_test.go.
package forgerun
