package relay

import (
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// Routes lists the tables for the comparison with the document.
func Routes() (all []string) {
	r := &Relay{}
	for _, t := range [][]httpapi.Route{r.routes(), r.routesV1()} {
		for _, route := range t {
			all = append(all, route.Method+" "+route.Pattern)
		}
	}
	return all
}

// Machine is the contract's table.
var Machine = machine

// ErrorTable is the table of errors.
var ErrorTable = errorTable

// DecodeJobs is decodeJobs of version 2.
func DecodeJobs(body []byte) ([]engine.Submission, error) { return decodeJobs(body, v2) }

// DecodeRuns is decodeRuns, and returns the number of runs.
func DecodeRuns(body []byte) (int, error) {
	entries, err := decodeRuns(body)
	return len(entries), err
}

// AppendJob is appendJob.
func AppendJob(b []byte, j *job.Job) []byte { return appendJob(b, j) }

// The decoders of values in paths.
var (
	UnescapeMember   = unescapeMember
	UnescapeMemberV1 = unescapeMemberV1
)

// MaxQueueLabels is the bound on labels.
const MaxQueueLabels = maxQueueLabels

// MaxBatch is the bound on the jobs of a request.
const MaxBatch = maxBatch

// ReadRunAtV1 is readRunAtV1.
var ReadRunAtV1 = readRunAtV1
