// Package forgerun is the ForgeRun contract: clients with API keys submit
// simulated jobs, follow them through their states, and are told of every change
// by reports and webhooks.
//
//	     submit
//	       │
//	       ▼      its time has come
//	   CREATED ───────────────────► QUEUED ◄────────────────┐
//	       │                        │  │ ▲                  │
//	cancel │                 cancel │  │ │ lease over       │ retry, while
//	       │                        │  │ │ before the start │ some are left
//	       │                claimed │  ▼ │                  │
//	       │                        │ ASSIGNED              │
//	       │                 cancel │  │                    │
//	       │                        │  │ started            │
//	       ▼                        ▼  ▼                    │
//	   CANCELED ◄─────── cancel ─── RUNNING ──────────► FAILED
//	                                   │    failed, too long,
//	                                   │    or its runner is lost
//	                                   └──────────────► SUCCEEDED
//
// ASSIGNED → QUEUED is the one move that the document forbids in one place and
// demands in another: the system alone makes it, and its event says so
// (G-FR-01). Everything else is the document's list.
//
// A job's row and its history are written by the engine in one transaction, so
// whatever is shown is computed from them and cannot disagree: the outcome, the
// attempt, the report, the ids of events (G-FR-34).
//
// What this package does not own: time, leases, retries, locks and storage are
// the engine's, clients and keys are account's, deliveries are webhook's, the
// pool that runs jobs is worker's. Here a request becomes one verb of those, and
// a run is a wait that ends as the catalogue of work kinds says.
package forgerun
