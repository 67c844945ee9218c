// Package telemetry is what a process reports about itself: log lines, metrics and traces.
//
// Log lines use the keys of log.go, and a key means the same in every line of every package.
//
// Metrics are kept in one registry for each contract and role, because the documents of the
// contracts use the same metric names for different things:
//
//	/metrics                    all registries, each metric with the labels contract and component
//	/metrics/{contract}         the metrics of a contract under the literal names of its document
//	/metrics/{contract}/{role}  those of one role of it, such as its workers
//
// # A new metric
//
//   - One of a contract is a field and its constructor in metrics.go of the contract. Relay's
//     counters by queue are a row of eventNames, a field of queueMetrics and a line of
//     newQueueMetrics. Images has two registries: metrics.go is for its API, metrics_worker.go for
//     its worker. The worker API has workerapi/metrics.go; it serves the jobs of all contracts
//     but Relay's, and its metrics are tested in overdue_test.go.
//   - It counts where something happens or, of jobs, what the engine has committed: transitions.go
//     of the contract is called for the causes that JobType() in contract.go (of FetchBox
//     JobTypes(), for its tasks) names as ReportedCauses. It passes each transition to
//     observeTransition of the metrics. A cause that is added there reaches all that is counted and
//     logged there.
//   - Of the store, millrace_store_statement_seconds times every statement by its name (lock_name
//     is a wait for a limit). Another one is in observers.go here, and reaches a database as a
//     member of its Config, as Observe does (cmd/millrace/store_*.go).
//   - Packages engine and maintenance have no metrics: they offer a number, a collector like those
//     of depth.go reads it, and cmd/millrace registers it, in Core if it is of no contract (an
//     example is recorded_ends.go there). A package with metrics of its own, such as inbox, gets a
//     Registry. A transaction may run twice, so a number of the engine is a member of afterCommit
//     (engine/unit.go) until notifyCommitted adds it. A number that is read at a scrape is a verb
//     of the engine where the port of the store has it (registerQueueDepths of serve.go), else a
//     method of the database's own store, like Pool of PostgreSQL, and a member of openedStore
//     (cmd/millrace/store.go): the port is full.
//   - metrics_test.go (ForgeRun: observe_test.go; here: telemetry_test.go) shows that it counts.
//     The lists of FetchBox and Images are complete and fail by themselves; the test of the example
//     of the engine is in tx_complete_contracts_test.go of cmd/millrace. docs/operating.md has it,
//     and deploy/prometheus (alerts) and deploy/grafana may, if an operator acts on it, and the
//     page of the contract if its document or guide names it. docs/reference/metrics.md is written
//     by go test ./cmd/millrace -run TestReference -update.
//
// # Traces
//
// Traces follow a job. The request that submits it carries a trace or starts one, the job stores
// it as text (Carrier), and every later attempt continues it (Resume), on whatever node it runs.
// Spans are sent to a collector when one is configured.
package telemetry
