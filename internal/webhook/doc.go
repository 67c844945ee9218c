// Package webhook delivers events to URLs: those of operators, to whom the events of all contracts
// go, those that a job names as its callback, and those of the clients of a contract, which is
// ForgeRun. It stores subscriptions, signs requests and makes deliveries. A delivery is a job of
// the engine, so it survives a crash, is retried, and its end is recorded.
//
//	a change of a job, with its messages in the outbox
//	  ├─ of the feed ───► DeliverEvents ─► SubmitChained       a chain for each subscription
//	  │                   (feed.go)        (engine/chain.go)   or callback, and job
//	  └─ of ForgeRun ───► ForgeRun.Deliver ─► Deliver          a chain for each client, job, URL
//	                                          (deliver.go)
//	both                  waiting ──► pending ◄──► sending ──► delivered
//	                                                 └──────► exhausted
//
// The messages are written in the transaction of the change. Each of the two is published by a
// leader of its own, oldest first, and deleted when its deliveries are stored: after a crash
// messages come again. The id of a delivery is a digest of event and receiver, so a repeated
// message makes no second delivery.
//
// A delivery is waiting until the delivery before it in its chain has finished, delivered or
// exhausted, so that a receiver gets the events of a job in order; this is a dependency of jobs,
// which no crash undoes. It is pending until it is due and a slot is free. An attempt that fails
// makes it pending again, with a growing delay, until its attempts are used up.
//
// Requests follow Standard Webhooks 1.0: webhook-id is the event's id and the same in every
// attempt, webhook-timestamp is the time of the attempt, webhook-signature holds one signature for
// each valid secret. A receiver gets an event at least once. An operator's subscriptions are apart
// from each other, also at one URL. If several subscriptions of a client and its job's callback
// name one URL, the URL gets the event once, signed with the secrets of all of them.
//
// A subscription is disabled when its receiver answers 410 or when no attempt has succeeded for 24
// hours. Deliveries for disabled and deleted subscriptions are still recorded and end as exhausted
// without an attempt; once a subscription is enabled they can be replayed. A replay is one more
// delivery of the same event.
//
// A worker.Pool of each node makes the requests (see dispatcher). No receiver delays another: if a
// slow receiver can take no more at the moment, its deliveries go back to the engine for a while
// (see destinations).
package webhook
