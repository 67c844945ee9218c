package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// operateJob lets an operator change a job. Status 0 is a request that was cut off.
func operateJob(url, id, what string) (status int) {
	resp, err := fetchClient.Post(url+"/operators/jobs/"+id+"/"+what, "", nil)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestFetchBoxKilledInCancel (RT-003) kills the server while, and after, an operator cancels a job
// that downloads: all of its resources are canceled or none, each has one dead letter, and a retry
// brings all of them.
func TestFetchBoxKilledInCancel(t *testing.T) {
	t.Parallel()
	const kills, n = 10, 4
	var hold atomic.Bool
	running := make(chan struct{}, 10*kills*n)
	site := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if hold.Load() {
			running <- struct{}{}
			<-r.Context().Done()
			return
		}
		_, _ = fmt.Fprint(w, bodyOf(r.URL.Path))
	})
	k := &killedFetchBox{dir: filepath.Join(t.TempDir(), "data")}
	k.start(t)
	jobs := map[string]string{} // id to the name of its manifest
	for kill := range kills {
		hold.Store(true)
		name := fmt.Sprint("m", kill)
		id := mustPost(t, k.url, name, site.resources(name, n))
		jobs[id] = name
		<-running
		k.killWhile(t, kill, id, "cancel")
		awaitCanceled(t, k.url, id, n)
		hold.Store(false)
		k.killWhile(t, kill, id, "retry")
		awaitFetched(t, k.url, id, n)
	}
	wantObjects(t, filesBelow(t, "resources", k.bucket()), jobs, n)
	if deadLetters := canceledDeadLetters(t, k.url); deadLetters != kills*n {
		t.Errorf("RT-003 there are %d dead letters, want %d", deadLetters, kills*n)
	}
	if err := k.terminate(); err != nil {
		t.Error(err)
	}
}

// killWhile kills the server after a request of an operator is answered or, every other time, while
// it is on its way, and starts it again. A request that has had no effect is repeated.
func (k *killedFetchBox) killWhile(t *testing.T, kill int, id, what string) {
	t.Helper()
	answered := make(chan int, 1)
	url := k.url
	go func() { answered <- operateJob(url, id, what) }()
	status := 0
	if kill%2 == 0 {
		status = <-answered
		k.kill()
	} else {
		for range kill { // so that it is somewhere in it
			fetchGet(url+"/operators/jobs/"+id, new(fetchJob))
		}
		k.kill()
		status = <-answered
	}
	k.start(t)
	if status == http.StatusAccepted {
		return
	}
	if status = operateJob(k.url, id, what); status != http.StatusAccepted &&
		status != http.StatusConflict { // the first one was carried out
		t.Fatalf("RT-003 %s is answered with %d", what, status)
	}
}

// awaitCanceled waits until a job has failed with all of its resources.
func awaitCanceled(t *testing.T, url, id string, n int) {
	t.Helper()
	var j fetchJob
	pollUntil(t.Fatalf, "the end of job "+id, func() bool {
		j = fetchJob{}
		ok := fetchGet(url+"/operators/jobs/"+id, &j)
		if ok && j.Failed != n {
			t.Fatalf("RT-003 a canceled job is %+v", j)
		}
		return j.Status == "failed"
	})
	if j.LastError == nil || j.LastError.Code != "CANCELED" {
		t.Errorf("RT-003 a canceled job is %+v with %+v", j, j.LastError)
	}
}

// canceledDeadLetters counts the dead letters of canceled resources.
func canceledDeadLetters(t *testing.T, url string) (n int) {
	t.Helper()
	var page struct {
		Items []struct {
			Code string `json:"failure_code"`
		}
		NextCursor *string `json:"next_cursor"`
	}
	for cursor := ""; ; cursor = "&cursor=" + *page.NextCursor {
		page.Items, page.NextCursor = nil, nil
		if !fetchGet(url+"/operators/dlq?limit=100"+cursor, &page) {
			t.Fatal("the dead letters cannot be read")
		}
		for _, l := range page.Items {
			if l.Code == "CANCELED" {
				n++
			}
		}
		if page.NextCursor == nil {
			return n
		}
	}
}
