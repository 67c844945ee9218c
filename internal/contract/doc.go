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
// The proof and an example is the contract WordCount (arch/sixth/testdata/wordcount), which a test
// of arch/sixth adds to the binary.
//
//   - Its folder has the files that arch/contract_test.go names (contractFiles; a file that it does
//     not need gets its reason in withoutFile) and the functions where it wants them (placesOf), as
//     they are in the other contracts (signatures, handlerNames). At least one handler has a
//     comment that begins with its route, as GET /…. Its tests have world_test.go, and a test that
//     holds openapi.yaml against the routes (exchange_test.go, of Images world_test.go). Where its
//     tests take minutes, .ci/bounds has its limit.
//
//   - It has a key NAME.listen and, if it takes a token, NAME.token. NAME is of the letters a to z.
//     If its jobs have callbacks it has NAME.callback_secret, which is CallbackSecret of its
//     setting.Group: without it callbacks are accepted and dropped. Jobs of a second kind are of a
//     job type NAME.word, as images.purge.
//
//   - Its Define is a line in the list of cmd/millrace/contracts.go. It is served then, and no
//     other code has to change for that.
//
//   - All other files that name every contract are listed by
//
//     git grep -il --all-match -e forgerun -e images -e taskflow -e fetchbox
//
//     Of these, tests of config and arch/sixth fail until they have it and, of cmd/millrace,
//     serve_*_test.go, hostile_matrix_test.go (with hostile_plant_test.go and
//     hostile_world_test.go), docs_names_test.go (the number of documents), settings.txtar,
//     start.txtar and reference_settings_test.go. The others show something for every contract, and
//     take it where that is of use, as do tests that name some of them (hostile_bombs_test.go and
//     inbox_kill_test.go of cmd/millrace, contract_secret_test.go of account).
//
//   - What operators may do with its jobs is in operator.go (Contract.Operators), with a case in
//     admin/actions_test.go. Without it no action on its jobs is allowed, and of their bodies only
//     the failure is shown. Submit and Check let schedules and operators submit its jobs (with
//     TakesHeaders for a job type and a callback), Hide takes secrets out of bodies, and Events has
//     the transitions that are events for webhooks.
//
//   - For remote workers it has Workers, in its setting.Group and in its Contract; then millrace
//     work takes it, and startWorkers of cmd/millrace/internal/jobs/remedies.go names that.
//     CheckQueue of its Definition is for queues that cannot have every name.
//
//   - Package client has a part for it, with a line in the drawing of its doc.go and, for remote
//     workers, a constant ContractX in worker_api.go; clients/ has the same in other languages (in
//     TypeScript also WorkerContract of worker-api-wire.ts and isFinal of final.ts). Errors in a
//     form of their own, which are no problem documents, are read by client/http.go, _http.py and
//     failure.ts, which no test asks for. cmd/millrace/internal/demo shows it at work.
//
//   - Its documents are a guide in docs/ (linked by docs/README.md), requirements in
//     docs/contracts/ and a column of the tables in across.md there, a section of docs/operating.md
//     and its lists (metrics, OpenAPI, tokens, dead letters), its place in docs/start.md,
//     concepts.md, clients.md, webhooks.md, security.md and scaling.md, and the README ("all
//     five", drawing, table of contracts). deploy/ has its alerts, its panels and, of Kubernetes,
//     what its workers scale by (autoscaling.yaml). docs/reference is written by go test
//     ./cmd/millrace -run TestReference -update; its page of errors has what Errors of the
//     Definition lists.
//
// # A new member of a job
//
// A column (see package sqlstore) is read where the contract reads its requests (request.go;
// FetchBox: manifest.go, of a header request.go and ingest.go) and goes into the job where that is
// made (handlers_*.go; Relay: request.go; FetchBox: tasks.go). Where a job is made anew it is
// copied: by rerun of TaskFlow (rerun.go, all columns by itself), ForgeRun (operator.go) and Images
// (handlers_jobs.go).
//
//   - Commands refuse members that they do not know: jobMembers and fullJob of enqueue/lines.go
//     (Relay), fileJob, fileMembers and spec of graph/graph.go (TaskFlow), both in
//     cmd/millrace/internal.
//   - TaskFlow lists members by hand: jobSpec, memberReaders and complete (request.go), apply of
//     its PUT (handlers_jobs.go), newJobNames (member_names.go) for misspellings, and
//     readOnlyMembers for what only a submission sets; client has TaskFlowSpec and TaskFlowPatch
//     (taskflow_wire.go), and so have clients/python and clients/typescript. ForgeRun keeps it in
//     jobSpec (encode and decodeJobSpec of request.go: a rerun is made of that), and compares it in
//     jobSpec.equal, for repeated idempotency keys.
//   - Clients see it in wire.go (nodes of a graph: handlers_graphs.go) and openapi.yaml of the
//     contract, in client, in its page of docs/contracts and its guide. Operators see it in Item
//     (item.go), itemMembers of admin/item_test.go, jobSchema of events/schema.go, the schemas of
//     an item in admin/openapi.yaml, AD-011 in docs/contracts/admin.md, client/admin_jobs.go,
//     admin_types.py and admin-jobs.ts of clients/, and the bodies of docs/webhooks.md.
//     jobs/list.go, jobs/show.go and top/view.go of cmd/millrace/internal and jobs.html and
//     job.html of console/pages print it, which no test asks for.
//   - Workers see of a claimed job what appendJob (workerapi/wire.go) writes, which is also in
//     openapi.yaml there and in ClaimedJob of client and clients/; handlers of the server that are
//     programs see what executor_external.go of TaskFlow and handler/external.go of FetchBox give.
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
