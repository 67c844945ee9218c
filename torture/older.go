package main

import "errors"

// With -older a run has nodes of two versions on one database, as while nodes are replaced one
// after another. Of two nodes that are started by turns one is older at any time. Every other start
// of a node is of the older server, so jobs, leases and messages of each version come to the other
// one, and a schema that is newer is made under a node that does not know it. From then on that
// server is refused, and the node goes on with the other one.
//
// What an older server does not do by its own contract is a violation here: the page says which
// versions were tried and what their runs can find.

// startCounts counts how often processes were started.
type startCounts struct {
	All   int `json:"all"`
	Older int `json:"older"`
}

// add adds other counts.
func (c *startCounts) add(other startCounts) {
	c.All += other.All
	c.Older += other.Older
}

// nextBinary returns the server of the next start, and counts it. The first node begins with the
// older one.
func (n *node) nextBinary() string {
	isOlder := (n.number+n.starts.All)%2 == 0
	n.starts.All++
	if n.older == "" || !isOlder {
		return n.binary
	}
	n.starts.Older++
	return n.older
}

// errSchemaRefused says that the older server does not know the schema of the database.
var errSchemaRefused = errors.New("the server does not know the schema of the database")

// exitUnavailable is the code with which a server ends whose database it cannot use.
const exitUnavailable = 3

// wasRefused reports whether the node was started as the older server, and has ended since its
// database is newer.
func (n *node) wasRefused() bool {
	n.mu.Lock()
	isOlder := (n.older != "") && (n.cmd != nil) && (n.cmd.Path == n.older)
	n.mu.Unlock()
	return isOlder && n.cannotUseDatabase()
}

// cannotUseDatabase reports whether the process has ended since it cannot use its database.
func (n *node) cannotUseDatabase() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.ended:
		return n.cmd.ProcessState.ExitCode() == exitUnavailable
	default:
		return false
	}
}
