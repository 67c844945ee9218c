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
package forgerun
