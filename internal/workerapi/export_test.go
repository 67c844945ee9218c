package workerapi

// Routes lists the table for the comparison with the document.
func Routes() (all []string) {
	for _, r := range (&Server{}).routes() {
		all = append(all, r.Method+" "+r.Pattern)
	}
	return all
}

// CodeOf is the code and status of an error.
func CodeOf(err error) (string, int) {
	a := errorTable.Answer(err)
	return a.Code, a.Status
}

// ErrorTable is the table of errors.
var ErrorTable = errorTable
