// Package webhook tells the outside what has happened: it keeps subscriptions, signs, and delivers.
// A delivery is a job of the engine, so it survives a crash, is tried again, and ends in a recorded
// way.
//
//	waiting ──► pending ◄──► sending ──► delivered
//	                            └──────► exhausted
//
// waiting is for the delivery of the event before it of the same chain at the same URL, so that a
// receiver sees the events of a job in order. That one may end either way. pending is for its time
// or a free slot. A try that fails goes back to pending, with a growing delay, until the tries are
// used up.
//
// What a receiver gets is exactly Standard Webhooks 1.0: webhook-id is the event's id and the same
// in every try, webhook-timestamp is that of the try, webhook-signature holds one signature for
// each secret that is valid. It gets an event at least once. Where several subscriptions and a
// job's callback name one URL it gets the event once, signed for each of them.
//
// A subscription is disabled by a receiver that answers 410, and when no try has succeeded for 24
// hours. Its deliveries are still recorded, and end as exhausted without a try, as do those of a
// deleted one: they can be replayed once it is enabled. One delivery of every event and URL; a
// replay is one more of the same event.
//
// No receiver delays another, see destinations: what a slow one cannot take now goes back to the
// engine for a while.
//
// The package owns no events: whoever has some calls Notify with them, in order, as often as it
// likes.
package webhook
