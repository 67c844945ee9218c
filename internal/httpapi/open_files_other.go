//go:build !unix

package httpapi

// maxOpenFiles returns how many files and connections this process may have open: there is no limit
// here.
func maxOpenFiles() int { return unlimitedFiles }
