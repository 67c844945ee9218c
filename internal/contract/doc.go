// Package contract says what a contract is to the process that serves it. Each folder below it is
// one contract.
//
//	Definition   what a contract declares: its settings, and what it needs. It exists before any
//	             setting is read
//	Deps         what a contract is built with: one process and what it has opened
//	Contract     what a contract offers once it is built: jobs, routes, background work, messages
//
// A contract has one function Define, and cmd/millrace lists these functions. Everything else that
// the process knows of a contract is in its Definition and its Contract, said by their fields: a
// field that is nil is not offered.
//
// # A new contract
//
// The proof and an example is the contract Tally of package arch/sixth, which a test adds to the
// binary.
//
//   - Its folder has the files that package arch names (contractFiles; a file that it does not need
//     gets its reason in withoutFile) and the functions where arch wants them (placesOf). At least
//     one handler has a comment that begins with its route, as GET /…. Its tests have
//     world_test.go, and a test that holds openapi.yaml against the routes (exchange_test.go, of
//     Images world_test.go).
//   - It has a key NAME.listen and, if it takes a token, NAME.token. NAME is of the letters a to z.
//     Jobs of a second kind are of a job type NAME.word, as images.purge.
//   - Its Define is a line in the list of cmd/millrace/contracts.go. No other code of server and
//     commands changes.
//   - Lists of contracts are in these tests: contracts_test.go, TestDefaults, resolved_test.go and
//     value_test.go of config, arch/sixth, and serve_*_test.go, settings.txtar, start.txtar and
//     reference_settings_test.go (contractTitles) of cmd/millrace. No test asks for the lists of
//     webhook_kill_test.go, docs_names_test.go (prefixes of metrics), hostile_world_test.go and
//     tx_complete_contracts_test.go there, of inbox/world_test.go, of admin/all_contracts_test.go
//     and of deploy/deploy_test.go.
//   - What operators may do with its jobs is in operator.go (Contract.Operators), with a case in
//     admin/actions_test.go. Without it no action on its jobs is allowed, and of their bodies only
//     the failure is shown. Submit and Check let schedules and operators submit its jobs (with
//     TakesHeaders for a job type and a callback), Hide takes secrets out of bodies, and Events has
//     the transitions that are events for webhooks.
//   - For remote workers it has Workers, in its setting.Group and in its Contract; then millrace
//     work takes it, and startWorkers of cmd/millrace/internal/jobs/remedies.go names that.
//     CheckQueue of its Definition is for queues that cannot have every name.
//   - Package client has a part for it, with a line in the drawing of its doc.go and, for remote
//     workers, a constant ContractX in worker_api.go; clients/ has the same in other languages.
//     cmd/millrace/internal/demo shows it at work.
//   - Its documents are a guide in docs/, requirements in docs/contracts/ and a column of the
//     tables in across.md there, a section of docs/operating.md and its lists (metrics, OpenAPI,
//     tokens, dead letters), docs/start.md, and the README ("all five", drawing, table of
//     contracts). docs/reference is written by go test ./cmd/millrace -run TestReference -update;
//     its page of errors has what Errors of the Definition lists.
//
// # A new member of a job
//
// A column (see package sqlstore) is read where the contract reads its requests (request.go;
// FetchBox: manifest.go) and goes into the job where that is made (handlers_*.go; Relay:
// request.go; FetchBox: tasks.go). Where a job is made anew it is copied: by rerun of TaskFlow
// (rerun.go), ForgeRun (operator.go) and Images (handlers_jobs.go).
//
//   - Commands refuse members that they do not know: jobMembers and fullJob of enqueue/lines.go
//     (Relay), fileJob, fileMembers and spec of graph/graph.go (TaskFlow), both in
//     cmd/millrace/internal.
//   - TaskFlow lists members by hand: memberReaders (request.go) and apply of its PUT, newJobNames
//     (member_names.go) for misspellings, and readOnlyMembers for what only a submission sets;
//     client has TaskFlowSpec and TaskFlowPatch, and so have clients/python and clients/typescript.
//     ForgeRun compares it in jobSpec.equal, for repeated idempotency keys.
//   - Clients see it in wire.go (nodes of a graph: handlers_graphs.go) and openapi.yaml of the
//     contract, in client, in its page of docs/contracts and its guide. Operators see it in Item
//     (item.go), itemMembers of admin/item_test.go, jobSchema of events/schema.go, the schemas of
//     an item in admin/openapi.yaml, AD-011 in docs/contracts/admin.md, client/admin_jobs.go,
//     admin_types.py and admin-jobs.ts of clients/, and the bodies of docs/webhooks.md.
//     jobs/list.go, jobs/show.go and top/view.go of cmd/millrace/internal and
//     console/pages/job.html print it, which no test asks for.
//
// # A new state
//
// States and transitions are in machine.go, their drawing in doc.go, their names also in the list
// beside the machine (states, statuses), in openapi.yaml, client and the requirements of the
// contract. metrics.go and operator.go name states. A transition has a cause that its state has no
// other transition for; a new cause is in Causes() too (job/machine.go, whose test has their
// number). transitions.go shows what is counted, logged and traced of transitions. A state that
// waits has a transition for Due or Satisfied, and leaves it as soon as DueAt has come, which the
// zero time has: a job that should stay is due at never, as a paused schedule is
// (schedule/machine.go).
//
// # A new event
//
// Package events describes it.
package contract
