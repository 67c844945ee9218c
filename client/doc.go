// Package client is the Go SDK of Millrace. It needs the standard library only and shares no
// types with the server: everything it knows of Millrace is what the contracts say on the wire.
//
// # One client, one type per contract
//
// [New] makes a [Client], which owns the connections, the credentials and the retries. Each
// contract is a type of its own on top of it:
//
//	Client ─┬─ Relay ─────── Worker      queues for workers of your own (Relay version 2)
//	        ├─ ForgeRun                  simulated jobs with schedules, reports and webhooks
//	        ├─ TaskFlow                  jobs that depend on one another
//	        ├─ FetchBox                  downloads of what a manifest lists
//	        ├─ Images                    variants of uploaded pictures
//	        ├─ WorkerAPI ─── JobWorker   execution of the jobs of all contracts but Relay
//	        └─ Admin                     what operators see and change, over all contracts
//
// A first job, and the client to submit it with:
//
//	c, err := client.New(client.Config{BaseURL: "http://127.0.0.1:8080"})
//	relay := c.Relay()
//	err = relay.Enqueue(ctx, []client.RelaySpec{{
//		Queue: "mail", ID: "welcome-42", Timeout: 30 * time.Second,
//		Payload: json.RawMessage(`{"to":"a@example.org"}`),
//	}}, client.RelayUnique)
//
// # The life of a Relay job
//
// A job is identified by its queue and id together (RL-001). [Relay.Claim] claims it and gives the
// run a run id; from then on the job is in flight and no other worker gets it. The lease lasts
// for the job's timeout and is extended to a whole timeout by every [Relay.Heartbeat], which may
// also store the job's state. [Relay.Complete] removes the job; [Relay.Requeue] replaces it by
// other jobs in one transaction. When no heartbeat arrives in time, the job returns to its queue
// and its next run gets a fresh run id. The old run id is then fenced out: a heartbeat under it
// fails with [ErrRunLost], and a late completion changes nothing.
//
// So a handler may start twice, but a result is accepted once. Handlers should be safe to
// repeat, or keep their progress in the job's state.
//
// # Workers
//
// A [Worker] does all of this for a handler. It claims as many jobs as it has free slots with
// long polls, sends a heartbeat at every third of a job's timeout, cancels the handler's context
// when the run is lost, completes the jobs whose handler returned nil, and drains when its own
// context ends.
//
//	w := &client.Worker{Relay: relay, Queue: "mail", Concurrency: 8,
//		Handler: client.Typed(func(ctx context.Context, run *client.Run, m Mail) error {
//			return send(ctx, m)
//		})}
//	err := w.Run(ctx)
//
// A worker completes the runs that end at about the same time in one request, and sends the
// heartbeats that are due together in one. While all of its slots are in use, a completion brings
// the next job. Programs that claim many jobs at a time themselves do
// so with [Relay.CompleteAll] and [Relay.HeartbeatAll].
//
// In Relay an attempt fails by its timeout alone. When a handler returns an error or panics, the
// worker logs the reason, sends it with the state that was not sent yet, and stops its heartbeats:
// the job returns after its timeout and has one retry less (RL-085, RL-086). Operators see the
// reason (G-RL-37). A job that is out of retries becomes a dead letter of its queue, which has it
// too: [Relay.DeadLetters] lists them, [Relay.Replay] enqueues one again.
//
// A handler that writes to the PostgreSQL of the server ends its run in the transaction of what it
// writes: package pgtx does so for jobs of all contracts.
//
// # ForgeRun
//
// [ForgeRun.CreateClient] creates a client of ForgeRun, [ForgeRun.CreateFirstAPIKey] its first API
// key, and [ForgeRun.WithAPIKey] uses that key. [ForgeRun.Submit] submits jobs, [ForgeRun.Wait]
// waits until a job has finished, and [ForgeRun.Report] reads its history. [ForgeRun.CreateWebhook]
// subscribes a URL to events; the receiver checks the requests with [VerifyWebhook].
//
//	forge := c.ForgeRun().WithAPIKey(key.APIKey)
//	receipt, err := forge.Submit(ctx, client.ForgeRunSpec{
//		Type: client.ForgeRunTypeExecute, Kind: client.ForgeRunWorkSuccessFast})
//	job, err := forge.Wait(ctx, receipt.JobID)
//
// # TaskFlow
//
// [TaskFlow.Submit] stores a job, [TaskFlow.SubmitGraph] a whole graph made with a
// [TaskFlowGraphBuilder], [TaskFlow.Search] finds jobs, and [TaskFlow.WaitGraph] waits until all
// jobs of a graph have finished. A [JobWorker] executes the jobs: when a handler returns nil the
// job is completed, with an error the attempt fails, and with a [Final] error the job fails.
//
//	w := &client.JobWorker{API: c.WorkerAPI(), Contract: client.ContractTaskFlow, Concurrency: 8,
//		Handlers: map[string]client.JobHandler{"etl": client.TypedJob(load)}}
//	err := w.Run(ctx)
//
// Programs that work on many short jobs at a time claim them with [WorkerAPI.Claim] and finish
// them with [WorkerAPI.Finish], up to 1000 in one request.
//
// # FetchBox
//
// [FetchBox.Submit] submits a manifest, made by [FetchBoxManifest.Encode] or ready JSON.
// [FetchBox.Wait] waits until all of its downloads have finished, [FetchBox.Logs] follows the
// job's log across broken connections, [FetchBox.Cancel] ends it, [FetchBox.DeadLetters] lists the
// downloads that were given up, [FetchBox.Replay] starts one of them again, and [FetchBox.Retry]
// all of a job.
//
//	box := c.FetchBox()
//	receipt, err := box.Submit(ctx, client.FetchBoxSpec{Type: "gallery", Manifest: manifest})
//	job, err := box.Wait(ctx, receipt.JobID)
//
// # Images
//
// [Images.Upload] streams a picture to the server, [Images.Wait] waits until its variants are
// made, and [Images.Variant] downloads one. [Images.SubmitJob] makes more variants,
// [Images.Delete] removes the file, and [Images.DeadLetters] lists the jobs that were given up.
//
//	images := c.Images()
//	receipt, err := images.Upload(ctx, client.ImageUpload{
//		Body: f, Name: f.Name(), Sizes: []int{100, 400}})
//	file, err := images.Wait(ctx, receipt.FileID)
//
// # Operators
//
// [Client.Admin] is the API of operators, for a client whose token is the operator's or the one
// that only reads. [Admin.Audit] lists what was changed and by whom, [Admin.Settings] and
// [Admin.Health] show the node that answers, [Admin.CreateLoginCode] makes a link that logs a
// browser in, and [Admin.RotateToken] replaces the token.
//
//	admin := c.Admin().WithActor("alice")
//	for entry, err := range admin.Audit(ctx, client.AdminAuditFilter{Target: "token:operator"}) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(entry.At, entry.Actor, entry.Action)
//	}
//
// # Errors and retries
//
// Every call of a contract fails with an [*Error]. Use errors.Is to distinguish the kinds:
// [ErrNotFound], [ErrConflict], [ErrCycle], [ErrRunLost], [ErrInvalid], [ErrUnauthorized],
// [ErrRetryable]. Code, Message and Instance are taken from the problem document, in the contracts
// that send one.
//
// A call is one or several tries, each an HTTP request. A try is repeated when the server asks
// for it (429, 503), when a gateway has no server behind it (502, 504) and when the connection
// fails. The pauses follow exponential backoff with full jitter and are never shorter than
// Retry-After, until [Retry] is used up or the context ends. A try whose answer was lost may
// have taken effect: the comment of each method says what a repeat does then, and
// [Error.Uncertain] reports that it may have happened.
//
// # JSON
//
// Payloads and states are [encoding/json.RawMessage] and travel byte for byte: the SDK neither
// compacts them nor interprets their numbers (RL-009).
package client
