// Package images is the contract of an image pipeline: a picture is uploaded, a message proposes
// its job, a worker claims it and makes variants in the object storage (001, "Job Lifecycle";
// requirements IP-).
//
//	upload   original → object storage, then one job (process_file); the outbox sends its message
//	message  → claim by id: an atomic conditional update; whoever loses does nothing
//	attempt  original → child process → variants → completed | failed_retryable | failed
//
// The states of the document are queued, processing, completed, failed_retryable and failed. Every
// way into a state that can be claimed is an event, and so a message: the end of a retry delay, a
// lock that ran out, a job given back. For that the machine has three states more, which are shown
// as what they are to the document: see shown.
//
// A message only proposes. One that is lost is sent again by a sweep, one too many finds the job
// claimed or over.
//
// There are no records of files: a file is its jobs. Their owner is the file's id, each knows what
// was uploaded, those of type process_file that are completed know the variants, and one of type
// delete_file marks the file as deleted. Dead letters are the jobs that failed. So jobs are kept
// for as long as their file is known, which is for ever.
//
// Objects have keys that follow from the file's id and the size: whoever makes a variant again
// overwrites it with the same bytes.
//
// A CDN is told of changes by jobs of a contract of their own, images.purge, after what changed is
// stored.
package images
