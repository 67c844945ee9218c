// Package job holds the nouns of Millrace and the rules that need nothing but them: what a job is,
// which states it may go through, in which order jobs are claimed, how long a retry waits, how
// dependencies are satisfied.
//
// A contract names its states as it likes and gives each a phase, which is what the store sees:
//
//	             due, satisfied           claimed            succeeded, failed for good
//	waiting ───────────────────▶ ready ───────────▶ leased ───────────────────────────▶ done
//	   ▲                           ▲                  │ failed, expired, released
//	   └── if it has to wait ──────┴──────────────────┘
//
// Which causes lead from which state to which is a table, see Machine. The identity of a job is
// its ID; its number, Seq, is given by the store; each of its attempts has a RunID.
//
// The package imports the standard library only and knows no clock, no store and no network: time
// and randomness are passed in. Every other package of the module may import it, and it imports
// none of them.
package job
