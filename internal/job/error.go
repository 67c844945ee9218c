package job

import (
	"errors"
	"strings"
)

// Kind is the kind of failure of an error. Each contract maps kinds to its own statuses and codes
// in one table.
type Kind uint8

// The kinds of error. Internal is the zero value, for errors that no code has classified.
const (
	Internal    Kind = iota // a defect of the server
	Malformed               // the request cannot be understood
	Invalid                 // it can be understood but breaks a documented limit or rule
	NotFound                // no such thing
	Conflict                // it exists already, or its state forbids this
	Cycle                   // the dependencies would close a cycle
	RunLost                 // the run is no longer the job's current one
	TooLarge                // more bytes than the limit
	Full                    // a queue or quota is at capacity
	Unavailable             // the store is unavailable, busy, full or read-only: may succeed later
	ReadOnly                // the store refuses writes until an operator acts
	Aborted                 // the request was canceled
	Timeout                 // the server took too long
	kinds
)

var kindNames = [...]string{"internal", "malformed", "invalid", "not found", "conflict", "cycle",
	"run lost", "too large", "full", "unavailable", "read-only", "aborted", "timeout"}

func (k Kind) String() string { return kindNames[k] }

// Kinds returns all kinds, for tests that a table has a row for each.
func Kinds() []Kind {
	all := make([]Kind, kinds)
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// Error is an error with a kind.
type Error struct {
	Kind Kind
	Op   string // the verb that failed, such as "engine.submit"
	Msg  string // for people; safe to show to the caller
	ID   ID     // the job it is about, if one
	Path []string
	Err  error // the cause, for logs only
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != "" {
		b.WriteString(e.Op + ": ")
	}
	if e.Msg != "" {
		b.WriteString(e.Msg)
	} else {
		b.WriteString(e.Kind.String())
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the first Error in err's chain, Internal if none.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// IsKind reports whether err is an Error of kind k.
func IsKind(err error, k Kind) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == k
}
