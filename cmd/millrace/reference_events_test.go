package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/contract"
)

// The page docs/reference/events.md has every type of events with what it means and an example.
func TestReferenceEvents(t *testing.T) {
	t.Parallel()
	s := launchNode(t, "data", "--set", "operator.token=secret")
	c, err := client.New(client.Config{BaseURL: s.url, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	p := &page{}
	p.line(`# Events

The types of events that a webhook may ask for, made from the code: %[1]sGET /admin/v1/webhook-events%[1]s
lists those of a node. [Webhooks](../webhooks.md) has requests, signatures and guarantees.

## Of all contracts

Operators' webhooks take all of these, by name or by a pattern such as %[1]staskflow.job.*%[1]s. Those that
a job's own callback takes are marked.`, "`")
	p.table("type", "callback", "when")
	var all []client.AdminWebhookEventType
	for one, err := range c.Admin().WebhookEventTypes(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
		mark := ""
		if contract.IsFinal(one.Type) {
			mark = "yes"
		}
		p.row(code(one.Type), mark, one.Description)
	}
	p.line("\n## Of clients of ForgeRun\n\nWebhooks of clients, and the callbacks of their jobs, have" +
		" these.")
	p.table("event", "the job")
	for _, one := range clientEvents {
		p.row(code(string(one.name)), one.meaning)
	}
	p.line("\n## Bodies\n")
	p.line("An example of each type. Its JSON Schema is in `GET /admin/v1/webhook-events`.")
	for _, one := range all {
		var text bytes.Buffer
		if err := json.Indent(&text, one.Example, "", "  "); err != nil {
			t.Fatal(err)
		}
		p.line("\n### %s\n\n```json\n%s\n```", one.Type, strings.TrimSpace(text.String()))
	}
	checkReference(t, "events.md", p.String())
}

// clientEvents are the events of clients of ForgeRun.
var clientEvents = []struct {
	name    client.ForgeRunEventName
	meaning string
}{
	{client.ForgeRunEventJobCreated, "was submitted"},
	{client.ForgeRunEventJobQueued, "may run: at once, when its time has come, or for another attempt"},
	{client.ForgeRunEventJobAssigned, "was claimed by a worker"},
	{client.ForgeRunEventJobStarted, "has begun to run"},
	{client.ForgeRunEventJobSucceeded, "has succeeded"},
	{client.ForgeRunEventJobFailed, "has failed; `final` says that no retry is left"},
	{client.ForgeRunEventJobCanceled, "was canceled"},
	{client.ForgeRunEventJobRequeued, "waits for a worker again: the lease of its attempt has ended"},
}

// The document of ForgeRun has the list of events of clients.
func TestReferenceClientEvents(t *testing.T) {
	t.Parallel()
	var names []string
	for _, one := range clientEvents {
		names = append(names, string(one.name))
	}
	for _, d := range defineContracts() {
		want := fmt.Sprintf("enum: [%s]", strings.Join(names, ", "))
		if d.Name() == "forgerun" && !strings.Contains(string(d.OpenAPI), want) {
			t.Errorf("the document has no %s", want)
		}
	}
}
