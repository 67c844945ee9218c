package contract

import (
	"errors"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/webhook"
)

// Callbacks is how a node takes the callbacks of single jobs (WH-005). The zero value takes none.
type Callbacks struct {
	Allowed bool          // webhook.callbacks
	Egress  egress.Config // of the requests
}

// ErrNoCallbacks refuses all callbacks.
var ErrNoCallbacks = errors.New("callbacks are disabled: the setting webhook.callbacks is false")

// Read checks where the events of a job shall go and returns what the job keeps of it. types are
// the events that it may have. The error is the text for the caller.
func (c *Callbacks) Read(to webhook.Callback, types []EventType) (string, error) {
	if !c.Allowed {
		return "", ErrNoCallbacks
	}
	if err := c.Egress.CheckURL(to.URL); err != nil {
		return "", err
	}
	names := make([]string, len(types))
	for i := range types {
		names[i] = types[i].Name
	}
	return to.Encode(names)
}

// finalChanges are the changes that end a job.
var finalChanges = []string{Completed, Failed, Canceled, Blocked, Dead, Deleted}

// IsFinal reports whether an event of a type ends a job.
func IsFinal(eventType string) bool {
	_, change, isOfJob := strings.Cut(eventType, ".job.")
	return isOfJob && slices.Contains(finalChanges, change)
}
