package workerapi

import "github.com/millrace/millrace/internal/job"

// Routes lists the table for the comparison with the document.
func Routes() (all []string) {
	for _, r := range (&API{}).routes() {
		all = append(all, r.Method+" "+r.Pattern)
	}
	return all
}

// CodeOf is the code and status of an error.
func CodeOf(err error) (string, int) {
	c := toProblem(err).code
	return string(c), codeInfos[c].status
}

// KindHasCode reports whether the table has a row for a kind.
func KindHasCode(k job.Kind) bool { _, found := kindCodes[k]; return found }
