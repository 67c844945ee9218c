// Package webhook delivers events to the URLs of clients. It stores subscriptions, signs requests
// and makes deliveries. A delivery is a job of the engine, so it survives a crash, is retried, and
// its end is recorded.
//
//	Notify ──► waiting ──► pending ◄──► sending ──► delivered
//	                                       └──────► exhausted
//
// A delivery is waiting until the delivery of the chain's previous event to the same URL has
// finished, delivered or exhausted, so that a receiver gets the events of a job in order. It is
// pending until it is due and a slot is free. An attempt that fails makes it pending again, with a
// growing delay, until its attempts are used up.
//
// Requests follow Standard Webhooks 1.0: webhook-id is the event's id and the same in every
// attempt, webhook-timestamp is the time of the attempt, webhook-signature holds one signature for
// each valid secret. A receiver gets an event at least once. If several subscriptions and a job's
// callback name one URL, the URL gets the event once, signed with the secrets of all of them.
//
// A subscription is disabled when its receiver answers 410 or when no attempt has succeeded for 24
// hours. Deliveries for disabled and deleted subscriptions are still recorded and end as exhausted
// without an attempt; once a subscription is enabled they can be replayed. There is one delivery of
// every event to every URL; a replay is one more delivery of the same event.
//
// A worker.Pool of each node makes the deliveries (see dispatcher). No receiver delays another: if
// a slow receiver can take no more at the moment, its deliveries go back to the engine for a while
// (see destinations).
//
// The package creates no events. Their owner passes them to Notify in order and may repeat them: a
// repeated event makes no second delivery.
package webhook
