package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/millrace/millrace/client"
)

// A manifest of two pages, one of which is not there: the job fails, and says of what.
func ExampleFetchBox() {
	server, stop, err := serveBox(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/index.html" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("hello"))
	}))
	defer origin.Close()

	ctx := context.Background()
	c, err := client.New(client.Config{BaseURL: server.url})
	if err != nil {
		fmt.Println(err)
		return
	}
	box := c.FetchBox()
	manifest, err := client.FetchBoxManifest{Resources: []client.FetchBoxResource{
		{ID: "index", URL: origin.URL + "/index.html"},
		{ID: "about", URL: origin.URL + "/about.html"},
	}}.Encode()
	if err != nil {
		fmt.Println(err)
		return
	}
	receipt, err := box.Submit(ctx, client.FetchBoxSpec{Type: "pages", Manifest: manifest,
		IdempotencyKey: "crawl-42"})
	fmt.Println("accepted:", receipt.Resources, err)
	repeated, err := box.Submit(ctx, client.FetchBoxSpec{Type: "pages", Manifest: manifest,
		IdempotencyKey: "crawl-42"})
	fmt.Println("the same:", repeated.JobID == receipt.JobID, err)
	job, err := box.Wait(ctx, receipt.JobID)
	fmt.Println(job.Status, job.Completed, job.Failed, job.LastError.Code, err)
	// Output:
	// accepted: 2 <nil>
	// the same: true <nil>
	// failed 1 1 HTTP_404 <nil>
}

// A log is followed until its job is done. Connections may break meanwhile.
func ExampleFetchBox_Logs() {
	server, stop, err := serveBox(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	origin := httptest.NewServer(http.NotFoundHandler())
	defer origin.Close()

	ctx := context.Background()
	c, err := client.New(client.Config{BaseURL: server.url})
	if err != nil {
		fmt.Println(err)
		return
	}
	box := c.FetchBox()
	manifest, err := client.FetchBoxManifest{Resources: []client.FetchBoxResource{{ID: "page",
		URL: origin.URL}}}.Encode()
	if err != nil {
		fmt.Println(err)
		return
	}
	receipt, err := box.Submit(ctx, client.FetchBoxSpec{Type: "pages", Manifest: manifest})
	if err != nil {
		fmt.Println(err)
		return
	}
	for entry, err := range box.Logs(ctx, receipt.JobID, client.FetchBoxLogOptions{Follow: true}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch entry.Level {
		case "error":
			fmt.Println(entry.ResourceID+":", entry.Message, entry.Fields["code"])
		case "info":
			if entry.Message == "all tasks have finished" {
				return
			}
		}
	}
	// Output: page: the task failed and is not retried HTTP_404
}
