package taskflow

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
)

// maxGraph is how many jobs one request may bring (G-TF-36).
const maxGraph = 10_000

// node is a job of a graph that is submitted: what it depends on is named by refs
// of the same request, or by ids.
type node struct {
	jobSpec

	ref       string
	dependsOn []string
}

// readGraph reads the jobs of a graph. Refs are not resolved.
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
	n.sent = nil // the raw text is not needed any more
	return n, err
}

// atGraphIndex says of which job of a graph an error is.
func atGraphIndex(err error, i int) error {
	var e *job.Error
	if !errors.As(err, &e) {
		return err
	}
	told := *e
	told.Msg = fmt.Sprintf("jobs[%d]: %s", i, e.Msg)
	return &told
}

// resolveRefs gives each job its id and replaces refs by ids. A ref counts before an
// id that looks the same.
func resolveRefs(nodes []node, ids []string) (byRef map[string]string, err error) {
	byRef = make(map[string]string, len(nodes))
	for i, n := range nodes {
		if _, twice := byRef[n.ref]; twice {
			return nil, atGraphIndex(invalid("ref %q is there twice", n.ref), i)
		}
		byRef[n.ref] = ids[i]
	}
	for i := range nodes {
		n := &nodes[i]
		seen := make(map[string]bool, len(n.dependsOn))
		for k, text := range n.dependsOn {
			id, ok := byRef[text]
			if !ok {
				id, ok = uuids.Parse(text)
			}
			if !ok {
				return nil, atGraphIndex(
					invalid("depends_on[%d] is neither a ref of this graph nor a UUID", k), i)
			}
			if !seen[id] {
				seen[id] = true
				n.dependencies = append(n.dependencies, id)
			}
		}
	}
	return byRef, nil
}
