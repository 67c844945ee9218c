// Package images is the contract of an image pipeline (001, "Job Lifecycle"; requirements IP-). An
// upload is stored and gets a job; a message proposes the job to the workers; the worker that
// claims it makes variants of the picture in the object storage.
//
//	upload   original ─► object storage, then one job (process_file); the outbox sends its message
//	message  ─► claim by id, an atomic conditional update; only one worker succeeds
//	attempt  original ─► child process ─► variants ─► completed | failed_retryable | failed
//
// The statuses of the document are queued, processing, completed, failed_retryable and failed.
// Every transition into a state that can be claimed is an event, and so sends a message: the end of
// a retry delay, a lease that expired, a job that was released. For these the machine has three
// more states, which statusOf maps to the statuses of the document:
//
//	queued ──────────► processing ──► completed
//	                    ▲   │ │ └───► failed
//	stale      ──claim──┤   │ └─────► failed_retryable ──due──► retry_due
//	retry_due  ──claim──┤   ├── lease expired ──► stale
//	released   ──claim──┘   └── released by its worker ──► released
//
// A message only proposes a job. The sweep sends a lost message again (sweep.go), and a superfluous
// one finds a job that is claimed or has finished (messages.go).
//
// There are no records of files: a file is the set of its jobs. The owner of a job is the id of its
// file, and each job contains what was uploaded. Completed jobs of the type process_file contain
// the variants, and a job of the type delete_file marks the file as deleted. Dead letters are
// failed jobs. So jobs are kept as long as their file is known, which is for ever.
//
// The key of an object consists of the file's id and the size, and variants are deterministic: an
// attempt that runs twice overwrites an object with the same bytes.
//
// What a crash leaves behind is repaired without an operator:
//
//	crash                             leaves                     repaired by
//	between original and job          an original without a job  the sweep, once it is old
//	between commit and message        a message in the outbox    the outbox, which sends it
//	after a message was received      a message that is not      the queue, which delivers it
//	                                  acknowledged               again, or the sweep
//	in an attempt                     a lease and some variants  the end of the lease: the job is
//	                                                             stale and proposed again
//	in an attempt, file deleted then  variants of no file        the next attempt, or the end of
//	                                                             the job (Deliver)
//
// A CDN is notified of changes by jobs of a type of their own, images.purge, after the change is
// stored (purge.go).
package images
