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
// Traces follow a job. The request that submits it carries a trace or starts one, the job stores
// it as text (Carrier), and every later attempt continues it (Resume), on whatever node it runs.
// Spans are sent to a collector when one is configured.
package telemetry
