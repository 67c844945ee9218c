// Package simulate acts as the users of a ForgeRun server and audits the outcome of their jobs.
//
// A simulation consists of scenarios. A scenario submits a job of one work kind, for some kinds
// two, and does what the kind asks for: it cancels, retries or submits again.
//
//	prepare   clients with keys of their own, each with webhooks of a [webhookSink]
//	load      scenarios start at the rate, of the work kinds of the [kindMix]
//	settle    every scenario goes on until its jobs have ended and the webhooks have arrived
//	audit     the requests, answers and webhooks are compared with what the server reports
//
// The simulator shares no rule with the server: the catalogue of work kinds, the transitions of the
// state machine and the rules of delivery are written down here once more, from the requirements.
// The audit is a pure function of a [history], so that tests with made-up histories show that it
// finds every violation.
package simulate
