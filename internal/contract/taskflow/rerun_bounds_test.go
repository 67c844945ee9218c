package taskflow_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestRerunOfLargePayloads: RT-001: what a rerun holds in memory is bounded: payloads of 64 MiB are
// copied whole, and more is a conflict that makes no job.
func TestRerunOfLargePayloads(t *testing.T) {
	w := inMemory(t, config())
	text := strings.Repeat("x", 65_000)
	root := w.create(t, `"payload":{"text":"`+text+`"}`).ID
	w.fail(t, root, false)
	last, size := root, 1
	for range 4 { // graphs, each below the last job of the one before
		vertices := make([]string, 240)
		for i := range vertices {
			vertices[i] = fmt.Sprintf(`{"ref":"%d","name":"n","queue":"q","payload":{"text":%q},`+
				`"depends_on":[%q]}`, i, text, last)
		}
		size += len(vertices)
		last = w.graph(t, vertices...)["0"]
	}
	made := w.rerun(t, pathOf(root)+"/graph/rerun", "")
	assertEqual(t, "RT-001 copies", len(made), size)
	copied := w.get(t, made[last])
	assertEqual(t, "RT-001 the payload of a copy", len(copied.Payload) > len(text), true)

	for range 100 {
		w.create(t, dependenciesMember(last), `"payload":{"text":"`+text+`"}`)
	}
	n := w.jobs(t)
	w.refusedRerun(t, pathOf(root)+"/graph/rerun", `{"again":true}`)
	w.refusedRerun(t, pathOf(root)+"/rerun", `{"again":true}`)
	assertEqual(t, "RT-001 jobs", w.jobs(t), n)
}
