// Package simulate plays the users of a ForgeRun server and audits what became of their jobs.
//
//	prepare   clients with keys of their own, each with webhooks of a [webhookSink]
//	load      plays begin at the rate: submissions of the work kinds of the [kindMix]
//	settle    every play goes on until its jobs have ended, and the webhooks have come
//	account   what was asked for, answered and received is held against what the server says
//
// The simulator trusts no word of the server: the catalogue of work kinds, the transitions of the
// state machine and the rules of delivery are written down here once more, from the requirements.
// The audit is a pure function of a [history], so that tests show with made-up histories that it
// finds every violation.
package simulate
