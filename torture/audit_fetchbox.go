package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// checkFetch checks the promises of FetchBox alone: that each job has the manifest that was sent
// (I1, I2) and was made once (I8), that its resources are stored as the origin has them, and that
// its numbers and dead letters are right (I14). Nothing may have reached the canary (I12).
func (a *audit) checkFetch() {
	for _, hit := range a.final.Canary {
		a.add("I12 egress", "the canary got %s", hit)
	}
	named := map[string]string{}
	for _, id := range slices.Sorted(maps.Keys(a.final.Fetch)) {
		j := a.final.Fetch[id]
		s := a.sent[j.Name]
		if direct := a.sent[id]; direct != nil {
			a.checkDirect(id, j, direct)
			continue
		}
		switch {
		case j.Manifest == "":
			a.add("I1 no acknowledged loss", "job %s has lost its manifest", id)
		case s == nil || s.contract != fetchbox || len(s.by) == 0:
			a.add("I2 no phantom", "job %s has a manifest that nobody has sent", id)
		case named[j.Name] != "":
			a.add("I8 idempotency", "manifest %s has made %s and %s", j.Name, named[j.Name], id)
		case j.Manifest != s.Payload:
			a.add("I1 no acknowledged loss", "job %s has another manifest than %s", id, j.Name)
		default:
			a.checkResources(id, j, s.by[0].Invoked)
		}
		named[j.Name] = id
	}
}

// checkResources checks what came of the resources of a job. The list of dead letters is a stream,
// which may have been lost after the job was sent.
func (a *audit) checkResources(id string, j fetchJob, sentAt int64) {
	var m manifest
	if err := json.Unmarshal([]byte(j.Manifest), &m); err != nil {
		a.add("I1 no acknowledged loss", "job %s has a broken manifest: %v", id, err)
		return
	}
	failed := 0
	for _, r := range m.Resources {
		kind := kindOf(r.URL)
		content, stored := j.Stored[r.ID]
		switch {
		case kindStored[kind] && content != contentOf(j.Name, r.ID):
			a.add("I1 no acknowledged loss", "job %s, which is %s, has %d bytes of %s, and not "+
				"those of the origin", id, j.Status, len(content), r.URL)
		case !kindStored[kind] && stored:
			a.add("I2 no phantom", "job %s has stored %d bytes of %s", id, len(content), r.URL)
		}
		wasWiped := !kindStored[kind] && !j.Dead[r.ID] && sentAt < a.final.Wiped
		switch {
		case wasWiped:
			a.wiped++
		case kindStored[kind] == j.Dead[r.ID]:
			a.add("I14 accounting", "job %s: resource %s has a dead letter: %t", id, r.URL,
				j.Dead[r.ID])
		}
		if !kindStored[kind] {
			failed++
		}
	}
	status := "completed"
	if failed > 0 {
		status = "failed"
	}
	if j.Status != status || j.Total != len(m.Resources) || j.Failed != failed ||
		j.Completed != j.Total-failed {
		a.add("I14 accounting", "job %s is %s, with %d of %d resources completed and %d failed; "+
			"%d of %d must fail", id, j.Status, j.Completed, j.Total, j.Failed, failed,
			len(m.Resources))
	}
}

// kindOf is the kind of a resource, the first member of the path of its URL.
func kindOf(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	_, path, _ := strings.Cut(rest, "/")
	kind, _, _ := strings.Cut(path, "/")
	return kind
}
