// Package job holds the nouns of Millrace and the rules that need nothing but
// them: what a job is, which states it may go through, in which order jobs are
// claimed, how long a retry waits, how dependencies are satisfied.
//
// It imports the standard library only and knows no clock, no store and no
// network: time and randomness are passed in. Everything else in the module
// points at this package; this package points at nothing.
package job
