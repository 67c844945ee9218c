package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/millrace/millrace/client"
)

// A client with a key of its own submits a job and waits for how it ends.
func ExampleForgeRun() {
	baseURL, stop := exampleForge()
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Config{BaseURL: baseURL})
	if err != nil {
		fmt.Println(err)
		return
	}
	open := c.ForgeRun()
	clientID, err := open.CreateClient(ctx, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	key, err := open.CreateFirstAPIKey(ctx, clientID) // keep key.APIKey: it is not shown again
	if err != nil {
		fmt.Println(err)
		return
	}
	forge := open.WithAPIKey(key.APIKey)

	receipt, err := forge.Submit(ctx, client.ForgeRunSpec{Type: client.ForgeRunTypeExecute,
		Kind: client.ForgeRunWorkRetryOnFail})
	fmt.Println("submitted:", receipt.State, err)
	job, err := forge.Wait(ctx, receipt.JobID)
	fmt.Println("ended:", job.State, err)
	if job.State == client.ForgeRunStateFailed && job.Failure.Retryable {
		_, err = forge.Retry(ctx, job.ID)
		fmt.Println("retried:", err)
		job, err = forge.Wait(ctx, job.ID)
		fmt.Println("ended:", job.State, err)
	}
	// Output:
	// submitted: CREATED <nil>
	// ended: FAILED <nil>
	// retried: <nil>
	// ended: SUCCEEDED <nil>
}

// A receiver answers 2xx to what is valid and new, and drops repeats.
func ExampleVerifyWebhook() {
	secret := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // from CreateWebhook
	visited := map[string]bool{}
	http.HandleFunc("POST /hook", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			return
		}
		notice, err := client.VerifyWebhook([]string{secret}, r.Header, body, time.Now())
		if errors.Is(err, client.ErrInvalidWebhook) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if !visited[notice.EventID] {
			visited[notice.EventID] = true
			fmt.Println(notice.JobID, notice.Prev, "→", notice.Next)
		}
	})
}

// exampleForge is a stand-in for a server, with answers ready.
func exampleForge() (baseURL string, stop func()) {
	answers := []forgeAnswer{okAnswer(201, `{"client_id":"c-1"}`), okAnswer(201, forgeIssued),
		okAnswer(202, `{"job_id":"j-1","state":"CREATED","created_at":"`+forgeAt+`"}`),
		okAnswer(200, forgeJob),
		okAnswer(200, `{"job_id":"j-1","state":"QUEUED","updated_at":"`+forgeAt+`","attempt":1}`),
		okAnswer(200, `{"job_id":"j-1","state":"SUCCEEDED","outcome":"SUCCESS"}`)}
	server := httptest.NewServer(&forgeScript{answers: answers})
	return server.URL, server.Close
}
