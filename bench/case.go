package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Case is one named load. The literal below has all cases.
type Case struct {
	Name    string
	Summary string // one line: what is measured, over which path

	// Divide makes slow cases smaller: a round runs n/Divide jobs. Zero is one.
	Divide int

	// Setup runs once, before the warm-up. An error made by skipf takes the case out of the bench
	// and is reported; any other error is a failure.
	Setup func(ctx context.Context, env *Env) (Runner, error)
}

// Runner is a case that has been set up.
type Runner interface {
	// Durability says in one line what survives a crash once a job is acknowledged, with the
	// settings seen on the server, not the ones hoped for.
	Durability() string

	// Name puts n jobs through and answers what it measured. It begins with empty tables, clears
	// and checks outside the clock, and gives up when ctx ends.
	Run(ctx context.Context, n int) ([]Phase, error)

	// Close releases what Setup took. It is called once, also after a failure.
	Close() error
}

// Phase is one measured part of a run.
type Phase struct {
	Name    string
	Jobs    int
	Took    time.Duration
	Latency []time.Duration // optional: one per operation
}

// Rate is jobs per second.
func (p Phase) Rate() float64 {
	if p.Took <= 0 {
		return 0
	}
	return float64(p.Jobs) / p.Took.Seconds()
}

// Names of phases. A ratio to the reference exists where both cases answer the same phase, so a new
// case should use these names where they fit.
const (
	phaseInsert  = "insert"     // submit jobs, acknowledged
	phaseClaim   = "claim"      // claim jobs for a worker
	phaseDelete  = "delete"     // finish jobs by removing them
	phaseWork    = "work"       // claim + run a no-op + finish, acknowledged
	phaseTotal   = "end-to-end" // all parts one after another
	phaseRequest = "request"    // one HTTP round trip

	startedFromIntended = "started, from intended" // from when a job was meant to be sent
)

// totalPhase adds the phases of one run up to its end-to-end phase.
func totalPhase(jobs int, parts ...Phase) Phase {
	all := Phase{Name: phaseTotal, Jobs: jobs}
	for _, p := range parts {
		all.Took += p.Took
	}
	return all
}

// cases is every case there is, in the order in which a round runs them.
var cases = []Case{
	{
		Name:    "floor-sqlite",
		Summary: "raw SQL on SQLite: one connection, batches of 100, one transaction each",
		Setup:   setupFloorSQLite,
	},
	{
		Name:    "floor-postgres",
		Summary: "raw SQL on PostgreSQL through pgx: unnest inserts, SKIP LOCKED claims, batches of 100",
		Setup:   setupFloorPostgres,
	},
	{
		Name:    "floor-http",
		Summary: "empty net/http answer, keep-alive connections, requests written by hand",
		Setup:   setupFloorHTTP,
	},
	{
		Name:    "floor-http-client",
		Summary: "the same server asked by net/http's own client",
		Setup:   setupFloorHTTPClient,
	},
	{
		Name:    "river",
		Summary: "River on PostgreSQL: InsertMany of 1000, no-op worker, finished rows kept",
		Setup:   setupRiver(riverInsertMany),
	},
	{
		Name:    "river-copy",
		Summary: "the same with InsertManyFast (COPY, no rows returned)",
		Setup:   setupRiver(riverInsertCopy),
	},
	{
		Name:    "river-single",
		Summary: "the same with single inserts from many goroutines",
		Divide:  4,
		Setup:   setupRiver(riverInsertSingle),
	},
	{
		Name:    "millrace-postgres",
		Summary: "Millrace's engine in process on PostgreSQL: batches of 1000, finished rows kept",
		Setup:   setupMillracePostgres(machineKeeping, 1000, 4),
	},
	{
		Name:    "millrace-postgres-16",
		Summary: "millrace-postgres with 16 callers at a time, not 4",
		Setup:   setupMillracePostgres(machineKeeping, 1000, 16),
	},
	{
		Name:    "millrace-postgres-32",
		Summary: "millrace-postgres with 32 callers at a time",
		Setup:   setupMillracePostgres(machineKeeping, 1000, 32),
	},
	{
		Name:    "bulk",
		Summary: "1,000 claims a second, alone and beside a bulk retry of n jobs, in process on SQLite",
		Setup:   setupBulk(setupMillraceSQLite(nil, 0, 0)),
	},
	{
		Name:    "bulk-postgres",
		Summary: "the same on PostgreSQL",
		Setup:   setupBulk(setupMillracePostgres(nil, 0, 0)),
	},
	{
		Name:    "millrace-postgres-single",
		Summary: "the same with single inserts from 64 goroutines",
		Divide:  4,
		Setup:   setupMillracePostgres(machineKeeping, 1, 64),
	},
	{
		Name:    "millrace-sqlite",
		Summary: "Millrace's engine in process on SQLite: batches of 100, finished rows removed",
		Setup:   setupMillraceSQLite(machineDeleting, 100, 4),
	},
	{
		Name:    "millrace-sqlite-single",
		Summary: "the same with single inserts from 64 goroutines",
		Setup:   setupMillraceSQLite(machineDeleting, 1, 64),
	},
	{
		Name:    "millrace-sqlite-16",
		Summary: "millrace-sqlite with 16 callers at a time, not 4",
		Setup:   setupMillraceSQLite(machineDeleting, 100, 16),
	},
	{
		Name:    "millrace-sqlite-64",
		Summary: "millrace-sqlite with 64 callers at a time",
		Setup:   setupMillraceSQLite(machineDeleting, 100, 64),
	},
	{
		Name:    "millrace-sqlite-recorded",
		Summary: "millrace-sqlite while series, node and workers are written as a server does",
		Setup:   setupRecorded(setupMillraceSQLite(machineDeleting, 100, 4)),
	},
	{
		Name:    "millrace-postgres-recorded",
		Summary: "millrace-postgres while series, node and workers are written as a server does",
		Setup:   setupRecorded(setupMillracePostgres(machineKeeping, 1000, 4)),
	},
	{
		Name: "millrace-http",
		Summary: "Millrace's binary over HTTP on SQLite: Relay, enqueue and next in batches of " +
			"100, complete one by one",
		Setup: setupMillraceHTTP("batches"),
	},
	{
		Name:    "millrace-http-whole",
		Summary: "the same, completed in batches of 100 too",
		Setup:   setupMillraceHTTP("whole"),
	},
	{
		Name:    "millrace-http-single",
		Summary: "the same with single jobs on 64 connections, completed one by one",
		Divide:  2,
		Setup:   setupMillraceHTTP("singles"),
	},
	{
		Name:    "millrace-backlog",
		Summary: "Millrace's binary on SQLite with n jobs queued: start, cost of a claim, memory",
		Setup:   setupBacklog,
	},
	{
		Name:    "queue-floor",
		Summary: "empty net/http answers, 64 connections: one to submit, two to claim and finish",
		Setup:   setupQueueFloor(http.MethodGet, http.MethodDelete),
	},
	{
		Name:    "queue-floor-next",
		Summary: "the same with one answer for a completion that claims the next job",
		Setup:   setupQueueFloor(http.MethodPost),
	},
	{
		Name:    "queue-millrace",
		Summary: "Millrace's binary over HTTP on SQLite: Relay, submit, claim and finish one by one",
		Setup:   setupQueueMillrace(false, 1, false),
	},
	{
		Name:    "queue-millrace-postgres",
		Summary: "the same on PostgreSQL",
		Setup:   setupQueueMillrace(true, 1, false),
	},
	{
		Name:    "queue-millrace-next",
		Summary: "Relay on SQLite: submitted one by one, each completion claims the next job",
		Setup:   setupQueueMillraceNext(false, 1),
	},
	{
		Name:    "queue-millrace-next-postgres",
		Summary: "the same on PostgreSQL",
		Setup:   setupQueueMillraceNext(true, 1),
	},
	{
		Name: "queue-millrace-batches-next",
		Summary: "Relay on SQLite: submitted in batches of 100, then each completion claims the " +
			"next job",
		Setup: setupQueueMillraceNext(false, 100),
	},
	{
		Name:    "queue-millrace-batches",
		Summary: "Relay on SQLite: submitted and claimed in batches of 100, finished one by one",
		Setup:   setupQueueMillrace(false, 100, false),
	},
	{
		Name:    "queue-millrace-batches-postgres",
		Summary: "the same on PostgreSQL",
		Setup:   setupQueueMillrace(true, 100, false),
	},
	{
		Name:    "queue-millrace-whole",
		Summary: "Relay on SQLite: submitted, claimed and finished in batches of 100",
		Setup:   setupQueueMillrace(false, 100, true),
	},
	{
		Name:    "queue-millrace-whole-postgres",
		Summary: "the same on PostgreSQL",
		Setup:   setupQueueMillrace(true, 100, true),
	},
	{
		Name:    "queue-beanstalkd",
		Summary: "beanstalkd with an fsync of each write: put, reserve, delete",
		Setup:   setupBeanstalkd,
	},
	{
		Name: "queue-rabbitmq",
		Summary: "RabbitMQ: durable queue, persistent messages, publisher confirms, " +
			"acknowledged one by one",
		Setup: setupRabbitMQ,
	},
	{
		Name:    "queue-nats",
		Summary: "NATS JetStream that syncs always: work-queue stream, explicit acks, both answered",
		Setup:   setupNATS,
	},
	{
		Name:    "queue-faktory",
		Summary: "Faktory on its own Redis: PUSH, FETCH, ACK",
		Setup:   setupFaktory,
	},
	{
		Name:    "queue-bullmq",
		Summary: "BullMQ in Node.js on Redis with appendfsync always: add, a worker of 64",
		Setup:   setupNode("bullmq"),
	},
	{
		Name:    "queue-pg-boss",
		Summary: "pg-boss in Node.js on PostgreSQL: send, fetch and complete, 64 at a time",
		Setup:   setupNode("pg-boss"),
	},
	{
		Name:    "queue-graphile-worker",
		Summary: "Graphile Worker in Node.js on PostgreSQL: addJob, a runner of 64",
		Setup:   setupNode("graphile-worker"),
	},
	{
		Name: "relay-start",
		Summary: "Relay on SQLite, 1,000 jobs a second, long polls on 64 connections: from the " +
			"intended submit to the start",
		Setup: setupRelayStart(false),
	},
	{
		Name:    "relay-start-postgres",
		Summary: "the same on PostgreSQL",
		Setup:   setupRelayStart(true),
	},
	{
		Name: "forgerun-submit",
		Summary: "Millrace's binary over HTTP on SQLite: ForgeRun, single submits on 64 " +
			"connections, nothing runs them",
		Setup: setupForge(forgeSubmit, "--no-workers"),
	},
	{
		Name:    "forgerun-submit-paced",
		Summary: "the same at 2,000 jobs a second, timed from when each was meant to be sent",
		Setup:   setupForge(forgeSubmitPaced, "--no-workers"),
	},
	{
		Name:    "forgerun-start",
		Summary: "ForgeRun with 16 workers, 300 short jobs a second: from submit to RUNNING",
		Divide:  4,
		Setup:   setupForge(forgeStart, forgeWorkers...),
	},
	{
		Name: "forgerun-scheduled",
		Summary: "ForgeRun with n jobs scheduled for later: how late 500 jobs are that come due " +
			"within 5 s",
		Setup: setupForge(forgeScheduled, forgeWorkers...),
	},
	{
		Name:    "taskflow-submit",
		Summary: "Millrace's binary over HTTP on SQLite: graphs of 10,000 jobs, each in one request",
		Setup:   setupFlow(flowSubmit, false),
	},
	{
		Name:    "taskflow-submit-postgres",
		Summary: "the same on PostgreSQL",
		Setup:   setupFlow(flowSubmit, true),
	},
	{
		Name: "taskflow-graph",
		Summary: "Millrace's binary over HTTP on SQLite: one graph in layers, workers claim 250 " +
			"at a time and complete in one request",
		Setup: setupFlow(flowGraph, false),
	},
	{
		Name:    "taskflow-graph-postgres",
		Summary: "the same on PostgreSQL",
		Setup:   setupFlow(flowGraph, true),
	},
	{
		Name:    "taskflow-graph-single",
		Summary: "the same graph on SQLite, completed one by one on 64 connections per worker",
		Setup:   setupFlow(flowGraphSingle, false),
	},
	{
		Name:    "taskflow-graph-single-postgres",
		Summary: "the same on PostgreSQL",
		Setup:   setupFlow(flowGraphSingle, true),
	},
	{
		Name:    "taskflow-graph-sdk",
		Summary: "the same graph on SQLite by eight workers of the Go client with 250 handlers each",
		Setup:   setupFlow(flowGraphSDK, false),
	},
	{
		Name:    "taskflow-graph-sdk-postgres",
		Summary: "the same on PostgreSQL",
		Setup:   setupFlow(flowGraphSDK, true),
	},
	{
		Name: "taskflow-engine",
		Summary: "the same graph through the engine in process on SQLite: workers claim and " +
			"finish 250 at a time",
		Setup: setupFlowEngine(false),
	},
	{
		Name:    "taskflow-engine-postgres",
		Summary: "the same on PostgreSQL",
		Setup:   setupFlowEngine(true),
	},
	{
		Name: "taskflow-search",
		Summary: "Millrace's binary over HTTP on SQLite with n jobs: a page with every " +
			"combination of filters, one at a time",
		Setup: setupFlowSearch(false),
	},
	{
		Name:    "taskflow-search-postgres",
		Summary: "the same on PostgreSQL",
		Setup:   setupFlowSearch(true),
	},
	{
		Name: "images-process",
		Summary: "a JPEG of 12 Mpx into 1600, 800, 400 and 100 pixels, as the server has it " +
			"done: one child a picture",
		Divide: 2000,
		Setup:  setupImages,
	},
	{
		Name:    "images-vipsthumbnail",
		Summary: "the same by libvips' vipsthumbnail, once for each of the four",
		Divide:  2000,
		Setup:   setupVips,
	},
	{
		Name: "floor-downloads",
		Summary: "a bare loop of net/http's client, 8 at a time: 16 KiB each from a server that " +
			"answers after 20 ms",
		Setup: setupFloorDownloads,
	},
	{
		Name: "fetchbox-downloads",
		Summary: "Millrace's binary on SQLite: the same downloads by manifests of 1000, into the " +
			"directory store",
		Setup: setupFetch,
	},
	{
		Name:    "fetchbox-downloads-nats",
		Summary: "the same with streams on a cluster of three NATS servers that sync always",
		Setup:   setupFetchNATS,
	},
	{
		Name:    "fetchbox-downloads-s3",
		Summary: "the same with objects on an S3 server (versitygw, files on the same disk)",
		Setup:   setupFetchS3,
	},
	{
		Name: "asynq",
		Summary: "asynq on Redis without persistence: single enqueues, no-op handler, finished " +
			"tasks deleted",
		Setup: setupAsynqMemory,
	},
	{
		Name:    "asynq-durable",
		Summary: "the same on Redis with appendonly yes and appendfsync always",
		Setup:   setupAsynqDurable,
	},
}

// skipError is the error of a case that cannot run here: a server is missing.
type skipError struct{ reason string }

func (s skipError) Error() string { return s.reason }

func skipf(format string, args ...any) error {
	return skipError{singleLine(fmt.Sprintf(format, args...))}
}

// singleLine makes one line of a message; pgx writes one line per address it tried.
func singleLine(message string) string { return strings.Join(strings.Fields(message), " ") }

func isSkip(err error) bool {
	var s skipError
	return errors.As(err, &s)
}

// selectCases picks cases by name, in the order of the list; no names mean all.
func selectCases(all []Case, names []string) ([]Case, error) {
	if len(names) == 0 {
		return all, nil
	}
	want := map[string]bool{}
	for _, name := range names {
		want[name] = true
	}
	var selected []Case
	for _, c := range all {
		if want[c.Name] {
			selected = append(selected, c)
			delete(want, c.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		return nil, fmt.Errorf("no case is named %q (see --list)", name)
	}
	return selected, nil
}
