package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// fetchLoad is the load on FetchBox: manifests of a few resources each, under idempotency keys. The
// server downloads them from an origin of the load, so there are no workers.
type fetchLoad struct {
	*run
	made atomic.Int64
}

const fetchbox = "fetchbox"

// fetchType is the job type of all manifests.
const fetchType = "default"

// manifest is a manifest as it is sent. Its metadata have the label of the job.
type manifest struct {
	Version   string            `json:"manifest_version"`
	Metadata  map[string]string `json:"metadata"`
	Resources []resource        `json:"resources"`
}

// resource is one of them. Its URL begins with what it is, see origin.
type resource struct {
	ID   string            `json:"id"`
	URL  string            `json:"url"`
	Tags map[string]string `json:"tags,omitempty"`
}

// load starts all actors. They submit until load ends.
func (l *fetchLoad) load(load context.Context) {
	for i := range 2 {
		a := l.newActor(fmt.Sprint("fetch-producer-", i))
		l.producersRunning.Go(func() {
			for a.pause(load, 400*time.Millisecond) {
				l.submit(load, a)
			}
		})
	}
}

// submit sends a manifest under a key until its outcome is known. Now and then it sends another one
// under the key, which is answered with the job of the first.
func (l *fetchLoad) submit(load context.Context, a *actor) {
	name := fmt.Sprint("m", l.made.Add(1))
	body := encode(l.newManifest(a, name))
	m := made{Name: name, Queue: fetchType, Payload: string(body)}
	send := func() *op {
		o := &op{Contract: fetchbox, Verb: "submit", Key: name, Made: []made{m}}
		a.send(context.Background(), o, request{method: http.MethodPost, path: "/jobs", body: body,
			header: map[string]string{"X-Fetchbox-Job-Type": fetchType,
				"X-Fetchbox-Idempotency-Key": name}, read: readReceipt("job_id")})
		return o
	}
	if o := a.repeat(load, send); o.Class == classOK && a.random.IntN(10) == 0 {
		body = encode(l.newManifest(a, name))
		send()
	}
}

// newManifest draws a manifest. Most resources are stored in the end; some can never be.
func (l *fetchLoad) newManifest(a *actor, name string) manifest {
	m := manifest{Version: "v1", Metadata: map[string]string{"of": name}}
	for i := range 1 + a.random.IntN(4) {
		m.Resources = append(m.Resources, l.newResource(a, name, i))
	}
	return m
}

// newResource draws a resource of a job.
func (l *fetchLoad) newResource(a *actor, name string, number int) resource {
	kinds := []string{kindPlain, kindPlain, kindPlain, kindOnce, kindOnce, kindCut, kindMoved,
		kindGone, kindWrong, kindForbidden}
	kind, r := kinds[a.random.IntN(len(kinds))], resource{ID: fmt.Sprint("r", number)}
	r.URL = fmt.Sprintf("%s/%s/%s/%s", l.origin.url, kind, name, r.ID)
	hinted := contentOf(name, r.ID)
	if kind == kindWrong {
		hinted += "?"
	}
	if digest := digestOf([]byte(hinted)); kind == kindWrong || a.random.IntN(2) == 0 {
		r.Tags = map[string]string{"checksum_hint": "sha256:" + digest}
	}
	return r
}

// digestOf is the SHA-256 of a text in hexadecimal.
func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// readReceipt returns what takes the id of the job, or of what it stands for, from an answer.
func readReceipt(member string) func(*op, []byte) error {
	return func(o *op, body []byte) error {
		var receipt map[string]any
		if err := json.Unmarshal(body, &receipt); err != nil {
			return err
		}
		id, _ := receipt[member].(string)
		if id == "" {
			return errors.New("the answer has no " + member)
		}
		if len(o.Made) > 0 {
			o.Made[0].Job = id
		}
		return nil
	}
}
