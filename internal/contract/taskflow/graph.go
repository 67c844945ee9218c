package taskflow

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
)

// A graph is submitted in one request: jobs with refs, and dependencies that name refs of the same
// request or ids of stored jobs. It is read in two steps, since the server assigns the ids:
//
//	readGraph    body → nodes with refs
//	resolveRefs  nodes + ids → dependencies as ids
//
// The engine then stores all jobs in one transaction, or none of them. It also finds the
// dependency cycles and the ids that no job has.

// maxGraph is how many jobs one request may submit (G-TF-36).
const maxGraph = 10_000

// node is a job of a submitted graph.
type node struct {
	jobSpec

	ref       string
	dependsOn []string // refs or ids, as sent
}

// readGraph reads and validates the jobs of a graph, apart from their refs. The error names the
// first job that is invalid by its index.
func readGraph(text []byte) ([]node, error) {
	if err := checkObject(text); err != nil {
		return nil, err
	}
	var raw []byte
	for name, value := range strictjson.Members(text) {
		if string(name) == "jobs" {
			raw = value
		}
	}
	if k := strictjson.KindOf(raw); k != strictjson.KindArray {
		return nil, invalid("jobs must be an array of jobs")
	}
	var nodes []node
	for i, element := range strictjson.Elements(raw) {
		if i == maxGraph {
			return nil, invalid("jobs has more than %d items", maxGraph)
		}
		n, err := readNode(element)
		if err != nil {
			return nil, atGraphIndex(err, i)
		}
		nodes = append(nodes, n)
	}
	if len(nodes) == 0 {
		return nil, invalid("jobs is empty")
	}
	return nodes, nil
}

// readNode reads a job by the rules of a create, with the members ref and depends_on in the place
// of dependencies.
func readNode(raw []byte) (n node, err error) {
	if k := strictjson.KindOf(raw); k != strictjson.KindObject {
		return n, invalid("must be an object and is of type %s", k)
	}
	if n.jobSpec, err = readSpec(raw, &graphNames); err != nil {
		return n, err
	}
	if err = n.complete(); err != nil {
		return n, err
	}
	if !n.has("ref") {
		return n, invalid("ref is missing")
	}
	if n.ref, err = readName("ref", n.sent["ref"], maxName); err != nil {
		return n, err
	}
	if n.has("depends_on") {
		err = readTexts("depends_on", n.sent["depends_on"], func(_ int, text string) error {
			n.dependsOn = append(n.dependsOn, text)
			return nil
		})
	}
	n.sent = nil // 10,000 nodes need not keep their raw text
	return n, err
}

// atGraphIndex adds to an error the index of the job in the graph.
func atGraphIndex(err error, i int) error {
	var e *job.Error
	if !errors.As(err, &e) {
		return err
	}
	located := *e
	located.Msg = fmt.Sprintf("jobs[%d]: %s", i, e.Msg)
	return &located
}

// resolveRefs assigns each job its id and translates depends_on to ids; byRef are the ids by ref.
// A ref that reads like a UUID counts before the id. A dependency named more than once is kept
// once (G-TF-18). A ref may be used before the job that has it.
func resolveRefs(nodes []node, ids []string) (byRef map[string]string, err error) {
	byRef = make(map[string]string, len(nodes))
	for i, n := range nodes {
		if _, duplicate := byRef[n.ref]; duplicate {
			return nil, atGraphIndex(invalid("ref %q is used twice", n.ref), i)
		}
		byRef[n.ref] = ids[i]
	}
	for i := range nodes {
		n := &nodes[i]
		added := make(map[string]bool, len(n.dependsOn))
		for k, text := range n.dependsOn {
			id, ok := byRef[text]
			if !ok {
				id, ok = uuids.Parse(text)
			}
			if !ok {
				return nil, atGraphIndex(
					invalid("depends_on[%d] is neither a ref of this graph nor a UUID", k), i)
			}
			if !added[id] {
				added[id] = true
				n.dependencies = append(n.dependencies, id)
			}
		}
	}
	return byRef, nil
}
