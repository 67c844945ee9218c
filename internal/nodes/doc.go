// Package nodes keeps what operators see of nodes and workers: each node writes one record about
// itself every five seconds, with the workers that it knows, and earlier when a queue is asked for
// the first time, though not more than once a second. A list is made of the records of all nodes;
// of the node that answers it has what holds now.
//
//	node a ── every 5 s ──▶ record a ─┐
//	node b ── every 5 s ──▶ record b ─┴─▶ All: nodes, and the workers of all
//
// A node that stops deletes its record. That of a node that was killed stays for five minutes, and
// shows when it was last seen, and after 15 seconds that it is gone.
package nodes
