package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit"
)

// What is planted carries one of two words: canary in what jobs carry, such as payloads, results,
// errors and the answers of receivers, and marked in the URLs of webhooks and callbacks, which
// operators see who see no payloads.
var plantedWords = []string{"canary-", "/marked?"}

// plant makes one thing of each kind, by the callers who may, and fills in the members of paths.
func (n *hostileNode) plant(t *testing.T) {
	t.Helper()
	origin := newCanaryOrigin(t)
	n.plantForgeRun(t, origin.URL)
	n.plantRelay(t, origin.URL)
	n.plantTaskFlow(t, origin.URL)
	n.plantFetchBox(t, origin.URL)
	n.plantImages(t)
	n.plantAdmin(t, origin.URL)
}

// newForgeClient makes a client with a key, and keeps the key as the secret of a caller.
func (n *hostileNode) newForgeClient(t *testing.T, caller string) (client, keyID string) {
	t.Helper()
	var made struct {
		ID string `json:"client_id"`
	}
	n.as(t, "", "POST", "/v1/clients", "{}", http.StatusCreated, &made)
	return made.ID, n.newKey(t, "", made.ID, "{}", caller)
}

// newKey makes a key of a client, by its present key if there is one.
func (n *hostileNode) newKey(t *testing.T, by, client, body, caller string) (keyID string) {
	t.Helper()
	var key struct {
		ID     string `json:"key_id"`
		Key    string `json:"api_key"`
		Secret string `json:"callback_secret"`
	}
	n.as(t, by, "POST", "/v1/clients/"+client+"/keys", body, http.StatusCreated, &key)
	n.secrets[caller] = key.Key
	if key.Secret != "" {
		n.hidden = append(n.hidden, key.Secret)
	}
	return key.ID
}

// plantForgeRun makes two clients. The owner has jobs, one of which has failed, a webhook with a
// delivery, and a key that was revoked.
func (n *hostileNode) plantForgeRun(t *testing.T, origin string) {
	t.Helper()
	client, _ := n.newForgeClient(t, "revoked")
	n.values["admin clients {id}"] = client
	n.values["forgerun {client_id}"] = client
	n.values["admin {key_id}"] = n.newKey(t, "revoked", client, `{"rotate":true}`, "owner")
	n.newForgeClient(t, "other")
	var hook struct {
		ID     string `json:"webhook_id"`
		Secret string
	}
	n.as(t, "owner", "POST", "/v1/webhooks", `{"url":"`+origin+`/marked?token=secret-in-a-url",
		"events":["job_failed"]}`, http.StatusCreated, &hook)
	n.hidden = append(n.hidden, hook.Secret, "secret-in-a-url")
	var made struct {
		ID string `json:"job_id"`
	}
	n.as(t, "owner", "POST", "/v1/jobs", `{"type":"EXECUTE","work_kind":"FAIL_IMMEDIATE",
		"callback":"`+origin+`/marked?token=secret-in-a-url"}`, http.StatusAccepted, &made)
	n.values["forgerun {job_id}"] = made.ID
	n.values["forgerun {webhook_id}"] = hook.ID
	n.values["forgerun {delivery_id}"] = n.awaitIn(t, "owner", "/v1/webhooks/"+hook.ID+
		"/deliveries", "delivery_id")
	testkit.WaitUntil(t, "a delivery", func() bool {
		return strings.Contains(n.do(t, "GET", "/v1/webhooks/"+hook.ID+"/deliveries", "",
			n.bearer("owner")...).body, "canary-answer")
	})
}

// plantRelay makes a job with a run, and a dead letter.
func (n *hostileNode) plantRelay(t *testing.T, origin string) {
	t.Helper()
	const queue = "relayed"
	n.as(t, "relay", "POST", "/v2/queues/jobs", fmt.Sprintf(`[
		{"queue":%q,"id":"dead","timeout":0,"max_retries":0,"payload":{"x":"canary-relay"}}]`,
		queue), http.StatusAccepted, nil)
	n.as(t, "relay", "GET", "/v2/queues/"+queue+"/jobs", "", http.StatusOK, nil)
	n.as(t, "relay", "POST", "/v2/queues/jobs", fmt.Sprintf(`[
		{"queue":%q,"id":"held","timeout":3600,"payload":{"x":"canary-relay"},
		"callback_url":"%s/marked?token=secret-in-a-url"}]`, queue, origin),
		http.StatusAccepted, nil)
	var claimed []struct {
		RunID string `json:"run_id"`
	}
	n.as(t, "relay", "GET", "/v2/queues/"+queue+"/jobs", "", http.StatusOK, &claimed)
	n.values["relay {queue}"], n.values["relay {id}"] = queue, "held"
	n.values["relay {run_id}"] = claimed[0].RunID
	n.values["relay dead-letters {id}"] = n.awaitIn(t, "relay",
		"/v2/queues/"+queue+"/dead-letters", "id")
}

// newTask makes a job of TaskFlow and returns its id.
func (n *hostileNode) newTask(t *testing.T, body string) (id string) {
	t.Helper()
	var made struct{ ID string }
	n.as(t, "taskflow", "POST", "/api/v1/jobs", body, http.StatusCreated, &made)
	return made.ID
}

// claimTask claims a job of TaskFlow and returns its run.
func (n *hostileNode) claimTask(t testing.TB, queue string) (run string) {
	t.Helper()
	var claimed struct {
		Jobs []struct {
			RunID string `json:"run_id"`
		}
	}
	n.as(t, "worker", "POST", "/worker/v1/claims", `{"contract":"taskflow","worker":"w1",
		"queues":["`+queue+`"]}`, http.StatusOK, &claimed)
	if len(claimed.Jobs) != 1 {
		t.Fatalf("claimed %v of %s", claimed, queue)
	}
	return claimed.Jobs[0].RunID
}

// plantTaskFlow makes jobs that have failed, are completed, run and wait.
func (n *hostileNode) plantTaskFlow(t *testing.T, origin string) {
	t.Helper()
	body := `{"name":"canary-name","queue":"flow","payload":{"x":"canary-payload"},
		"callback":{"url":"` + origin + `/marked?token=secret-in-a-url"}}`
	failed := n.newTask(t, body)
	n.as(t, "worker", "POST", "/worker/v1/runs/"+n.claimTask(t, "flow")+"/fail",
		`{"error":"canary-error","retryable":false}`, http.StatusOK, nil)
	n.newTask(t, body)
	n.as(t, "worker", "POST", "/worker/v1/runs/"+n.claimTask(t, "flow")+"/complete",
		`{"result":"canary-result"}`, http.StatusOK, nil)
	n.newTask(t, body)
	run := n.claimTask(t, "flow")
	n.as(t, "worker", "POST", "/worker/v1/runs/"+run+"/heartbeat", `{"state":"canary-state"}`,
		http.StatusOK, nil)
	waiting := n.newTask(t, body)
	n.newTask(t, `{"name":"canary-name","queue":"flow","dependencies":["`+waiting+`"]}`)
	n.values["taskflow {job_id}"] = failed
	n.values["worker {job_id}"], n.values["worker {run_id}"] = waiting, run
}

// plantFetchBox makes a job whose resource is not there, with its dead letter.
func (n *hostileNode) plantFetchBox(t *testing.T, origin string) {
	t.Helper()
	var made struct {
		ID string `json:"job_id"`
	}
	n.as(t, "fetchbox", "POST", "/jobs", `{"manifest_version":"v1",
		"metadata":{"x":"canary-metadata"},"resources":[{"id":"canary-resource","url":"`+origin+
		`/missing-marked?token=secret-in-a-url","headers":{"x-key":"secret-in-a-header"},
		"tags":{"x":"canary-tag"}}]}`, http.StatusAccepted, &made, "X-Fetchbox-Job-Type", "default",
		"X-Fetchbox-Tenant", "canary-tenant", "X-Fetchbox-Callback-Url",
		origin+"/marked?token=secret-in-a-url")
	n.hidden = append(n.hidden, "secret-in-a-header")
	n.values["fetchbox {job_id}"] = made.ID
	n.values["fetchbox {offset}"] = n.awaitIn(t, "operator", "/operators/dlq", "offset")
	testkit.WaitUntil(t, "the end of the manifest", func() bool {
		return strings.Contains(n.do(t, "GET", "/operators/jobs/"+made.ID+"/logs?limit=100", "",
			n.bearer("operator")...).body, "the job is failed")
	})
}

// plantImages makes a file with its variants.
func (n *hostileNode) plantImages(t *testing.T) {
	t.Helper()
	var made struct {
		FileID string `json:"file_id"`
		JobID  string `json:"job_id"`
	}
	n.as(t, "images", "POST", "/images/v1/files?sizes=16", canaryPicture(t), http.StatusAccepted,
		&made, "Content-Type", "image/jpeg", "X-User-Id", "canary-user")
	testkit.WaitUntil(t, "the variants", func() bool {
		return strings.Contains(n.do(t, "GET", "/images/v1/files/"+made.FileID, "",
			n.bearer("images")...).body, `"ready"`)
	})
	n.values["images {file_id}"], n.values["images {job_id}"] = made.FileID, made.JobID
	n.values["images {size}"] = "16"
	n.values["admin files {id}"], n.values["admin variants {size}"] = made.FileID, "16"
}

// plantAdmin makes what operators have, and looks up what the others have made.
func (n *hostileNode) plantAdmin(t *testing.T, origin string) {
	t.Helper()
	n.as(t, "operator", "POST", "/admin/v1/schedules", `{"name":"nightly","every":"1h",
		"contract":"taskflow","request":{"name":"canary-name","queue":"flow"}}`,
		http.StatusCreated, nil)
	var hook struct{ ID, Secret string }
	n.as(t, "operator", "POST", "/admin/v1/webhooks", `{"url":"`+origin+
		`/marked?token=secret-in-a-url","events":["queue.*"]}`, http.StatusCreated, &hook)
	n.hidden = append(n.hidden, hook.Secret)
	var bulk struct {
		ID string `json:"bulk_id"`
	}
	n.as(t, "operator", "POST", "/admin/v1/bulk", `{"action":"rerun","rate":1,
		"filter":{"queue":"none"}}`, http.StatusAccepted, &bulk)
	first := func(path, member string) string { return n.awaitIn(t, "operator", path, member) }
	for name, value := range map[string]string{
		"jobs {number}":         first("/admin/v1/jobs?contract=taskflow&state=FAILED", "number"),
		"manifests {number}":    first("/admin/v1/jobs?kind=manifest", "number"),
		"bulk {id}":             bulk.ID,
		"dead-letters {id}":     first("/admin/v1/dead-letters?contract=relay", "id"),
		"inbox {id}":            "01890000-0000-7000-8000-000000000000",
		"webhooks {id}":         hook.ID,
		"deliveries {delivery}": n.values["forgerun {delivery_id}"],
		"schedules {name}":      "nightly",
		"nodes {name}":          first("/admin/v1/nodes", "name"),
		"workers {name}":        first("/admin/v1/workers", "name"),
		"{contract}":            "taskflow",
		"{queue}":               "flow",
	} {
		n.values["admin "+name] = value
	}
}

// missing are the values of members for which there is nothing.
func (n *hostileNode) missing() map[string]string {
	values := map[string]string{}
	for name, value := range n.values {
		switch {
		case len(value) == 36:
			value = "0" + value[1:35] + string("0123456789abcdef"[(value[35]-'0'+1)%10])
		case strings.Trim(value, "0123456789") == "":
			value = "1" + value + "999"
		default:
			value += "-missing"
		}
		values[name] = value
	}
	return values
}
