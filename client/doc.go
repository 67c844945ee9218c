// Package client is the Go SDK of Millrace. It needs the standard library only
// and shares no types with the server: what it knows of Millrace is what the
// contracts say on the wire.
//
// # One client, one file per contract
//
// [New] makes a [Client], which owns the connections, the credentials and the
// retries. Each contract hangs on it: [Client.Relay] speaks Relay version 2,
// the queue for workers of your own; [Client.ForgeRun] speaks ForgeRun, where
// the server runs simulated jobs and tells of every change; [Client.TaskFlow]
// speaks TaskFlow, jobs that depend on one another; [Client.FetchBox] speaks
// FetchBox, which downloads what manifests list; [Client.Images] speaks Images,
// which makes variants of pictures; [Client.WorkerAPI] takes and runs the jobs of
// any contract but Relay.
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
// A job is known by its queue and id together (RL-001). [Relay.Next] hands it
// out and gives it a run id; from then on it is in flight and nobody else gets
// it. The lease lasts for the job's timeout and starts anew with every
// [Relay.Heartbeat], which may also store the job's state. [Relay.Complete]
// removes the job, [Relay.Requeue] puts others in its place in one
// transaction. When no heartbeat comes in time the job returns to its queue
// under a new run id, and the old one is worth nothing: a heartbeat answers
// [ErrRunLost], and a late completion changes nothing.
//
// So a handler may start twice, but a result is accepted once. Handlers should
// be safe to repeat, or keep their progress in the job's state.
//
// # Workers
//
// A [Worker] does all of this for a handler: it long-polls for as many jobs as
// it has free slots, beats at a third of each job's timeout, ends the
// handler's context when its run is lost, completes what returned nil and
// drains when its own context ends.
//
//	w := &client.Worker{Relay: relay, Queue: "mail", Concurrency: 8,
//		Handler: client.Typed(func(ctx context.Context, run *client.Run, m Mail) error {
//			return send(ctx, m)
//		})}
//	err := w.Run(ctx)
//
// Relay has no failure report. When a handler returns an error or panics, the
// worker logs why, sends the state that was still waiting, and stops beating:
// the job's timeout brings it back and uses up one of its retries (RL-085,
// RL-086).
//
// # ForgeRun
//
// A client of ForgeRun is made with [ForgeRun.CreateClient], gets its first key
// with [ForgeRun.FirstKey] and goes on with [ForgeRun.WithKey]. It submits jobs
// with [ForgeRun.Submit], waits for how they end with [ForgeRun.Wait], and
// reads what happened with [ForgeRun.Report]. Listeners are registered with
// [ForgeRun.RegisterWebhook]; what they receive goes through [VerifyWebhook].
//
//	forge := c.ForgeRun().WithKey(key.APIKey)
//	receipt, err := forge.Submit(ctx, client.ForgeRunSpec{
//		Type: client.ForgeExecute, Kind: client.ForgeSuccessFast})
//	job, err := forge.Wait(ctx, receipt.JobID)
//
// # TaskFlow
//
// [TaskFlow.Create] stores a job, [TaskFlow.Submit] a whole graph that a
// [TaskFlowBuilder] has put together, [TaskFlow.Search] finds jobs, and
// [TaskFlow.WaitGraph] waits until all of a graph have ended. The jobs are run
// by a [JobWorker]: with nil a handler completes its job, with an error it
// fails this try, with a [Final] error the job.
//
//	w := &client.JobWorker{API: c.WorkerAPI(), Contract: client.ContractTaskFlow, Concurrency: 8,
//		Handlers: map[string]client.JobHandler{"etl": client.TypedJob(load)}}
//	err := w.Run(ctx)
//
// Programs that work on many short jobs at a time take them with
// [WorkerAPI.Claim] and end them with [WorkerAPI.Finish], up to 1000 in a
// request.
//
// # FetchBox
//
// [FetchBox.Submit] hands in a manifest, which [FetchBoxManifest.Encode] writes
// or which is sent as it is. [FetchBox.Wait] waits until all of its downloads are
// settled, [FetchBox.Logs] follows what happens to them over broken connections,
// [FetchBox.DeadLetters] are those that were given up, and [FetchBox.Replay] gives
// one new tries.
//
//	box := c.FetchBox()
//	receipt, err := box.Submit(ctx, client.FetchBoxSpec{Type: "gallery", Manifest: manifest})
//	job, err := box.Wait(ctx, receipt.JobID)
//
// # Images
//
// [Images.Upload] streams a picture to the server, [Images.Wait] waits until its
// variants are made, and [Images.Variant] downloads one. [Images.CreateJob] makes
// more of them, [Images.Delete] removes the file, and [Images.DeadLetters] are the
// jobs that failed for good.
//
//	images := c.Images()
//	receipt, err := images.Upload(ctx, client.ImageUpload{Body: f, Name: f.Name(), Sizes: []int{100, 400}})
//	file, err := images.Wait(ctx, receipt.FileID)
//
// # Errors and retries
//
// Every call of a contract fails with an [*Error]; errors.Is tells the kinds
// apart ([ErrNotFound], [ErrConflict], [ErrCycle], [ErrRunLost], [ErrInvalid],
// [ErrUnauthorized], [ErrRetryable]), and Code, Message and Instance are those of
// the problem document where the contract sends one. Answers that ask to come
// again (429, 503), gateways without a server behind them (502, 504) and broken
// connections are retried with exponential backoff and full jitter, no sooner
// than Retry-After says, until [Retry] is used up or the context ends. A try
// whose answer was lost may have done its work; each method says what repeating
// it means, and [Error.Uncertain] says when it may have happened.
//
// # JSON
//
// Payloads and states are [encoding/json.RawMessage] and travel byte for byte:
// the SDK neither compacts them nor reads their numbers (RL-009).
package client
