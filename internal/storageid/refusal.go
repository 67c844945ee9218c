package storageid

import (
	"errors"
	"slices"

	"github.com/millrace/millrace/internal/job"
)

// The Op of a refusal says what it is for.
const (
	bindOp = "storageid.bind" // these are not the database's
	lockOp = "storageid.lock" // another node has locked them
)

// refusal returns why the node may not serve, nil if it may. The text is shown to users, so it
// names the settings and no ids.
func (c *comparison) refusal() error {
	switch {
	case len(c.others) > 0:
		what, settings := describe(c.others)
		return &job.Error{Kind: job.ReadOnly, Op: bindOp, Msg: "the " + what +
			" of this node are not those of the other nodes on this database: " +
			settings + " must be the same on all"}
	case len(c.inUse) > 0:
		what, _ := describe(c.inUse)
		return &job.Error{Kind: job.ReadOnly, Op: lockOp, Msg: "the " + what +
			" of this node are locked by another node, which runs or ran some seconds ago: " +
			"one of the two data directories is a copy of the other, or was moved"}
	}
	return nil
}

// describe returns the words for storage with these names, and for the settings that say where it
// is.
func describe(names []string) (what, settings string) {
	hasObjects := slices.Contains(names, objects)
	switch {
	case !hasObjects:
		return "streams", "stream.url"
	case len(names) > 1:
		return "objects and streams", "objects.url, objects.bucket and stream.url"
	}
	return "objects", "objects.url and objects.bucket"
}

// adviceFor returns what an operator can do about a refusal. It is logged once, when the node
// begins to refuse.
func adviceFor(refusal error) string {
	var known *job.Error
	isKnown := errors.As(refusal, &known)
	if isKnown && known.Op == lockOp {
		return "stop one of the two nodes (this one serves some seconds after the other has " +
			"ended), or give both the same objects.url and stream.url; to take them from " +
			"the other node at once, start this one with rebind_storage=true"
	}
	return "give it the objects and streams of the other nodes on this database " +
		"(objects.url, objects.bucket, stream.url); " +
		"where those are lost or have moved, start one node with rebind_storage=true"
}
