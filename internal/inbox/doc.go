// Package inbox takes over what producers submit by SQL, in transactions of their own (decision
// 0090). On a database without an inbox it has nothing to do.
//
//	producer   BEGIN … millrace.submit(…) … COMMIT ──▶ rows of inbox and inbox_transactions
//	                                            └─ NOTIFY, or the look of each second ─┐
//	node       ┌── Engine.InboxReady ◀─────────────────────────────────────────────────┘
//	           ▼
//	          claim transactions for a lease ──▶ read their requests ──▶ submit each chain
//	                                                                       │
//	            the contract checks a request and submits its job: in the transaction of that the
//	            row of the request is locked, found waiting, and updated (engine.WithInbox)
//
// A request is submitted by the contract's own code, as its route would do it, and once: its job
// and its new state are stored together. The lease keeps nodes from doing the same work, and
// nothing else depends on it. What one transaction of a producer has submitted is a chain: its
// requests are submitted in their order, and while one of them cannot be submitted yet those behind
// it wait. Chains that take long are submitted in the background, while others are claimed.
//
//	submitted   with the job's number and id
//	refused     the contract does not take it: it stays with the error, and a chain goes on
//	waiting     something does not answer or is at its limit: the chain is tried again after a
//	            second, then after twice as long each time, up to half a minute; others go on
//	skipped     this node does not serve the contract, or must not for now: the chain is due for
//	            others at once. Where none takes it, it waits as above, and says so
package inbox
