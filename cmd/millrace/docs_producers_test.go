package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/millrace/millrace/client"
)

// messageChanges are what is changed in a message that has all members, one in each message; nil
// takes the member away.
var messageChanges = []struct {
	member string
	value  any
}{
	{"other", 1}, {"job_id", nil}, {"job_id", "7"}, {"job_id", 7}, {"job_type", nil},
	{"job_type", 7}, {"resource_id", nil}, {"resource_id", ""}, {"resource_id", 7},
	{"resource_id", strings.Repeat("é", 128)}, {"resource_id", strings.Repeat("x", 129)},
	{"url", nil}, {"url", ""}, {"url", 7}, {"headers", nil}, {"headers", map[string]any{"a": 1}},
	{"headers", "a"}, {"tags", nil}, {"tags", map[string]any{"a": 1}}, {"tags", []int{1}},
	{"proxy", nil}, {"proxy", "p"}, {"proxy", map[string]any{"primary": 1}},
	{"proxy", map[string]any{"fallbacks": "p"}}, {"proxy", map[string]any{"fallbacks": []int{1}}},
	{"storage", nil}, {"storage", "b"}, {"storage", map[string]any{"bucket": 1}},
	{"storage", map[string]any{"key": 1}}, {"storage", map[string]any{"metadata": "m"}},
	{"storage", map[string]any{"metadata": map[string]any{"a": 1}}}, {"manifest_key", nil},
	{"manifest_key", 1}, {"tenant", nil}, {"tenant", 1}, {"trace_id", nil}, {"trace_id", 1},
	{"attempt", nil}, {"attempt", "1"}, {"attempt", 1.5},
}

// messageSchema is the schema of docs/producers.md, and the names of its members.
func messageSchema(t *testing.T) (schema *jsonschema.Schema, members map[string]any) {
	t.Helper()
	blocks := codeBlocks(t, "producers.md", "json")
	if len(blocks) != 1 {
		t.Fatalf("the page has %d schemas, want 1", len(blocks))
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(blocks[0]))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("urn:message", document); err != nil {
		t.Fatal(err)
	}
	if schema, err = compiler.Compile("urn:message"); err != nil {
		t.Fatal(err)
	}
	return schema, document.(map[string]any)["properties"].(map[string]any)
}

// TestSchemaOfTheDocs: a server takes the messages that the schema of docs/producers.md allows, and
// makes dead letters of those that it does not allow.
func TestSchemaOfTheDocs(t *testing.T) {
	t.Parallel()
	schema, members := messageSchema(t)
	address := freeAddress(t)
	s := launchNode(t, "data", "--set", "contracts=fetchbox", "--set", "stream.listen="+address)
	conn, err := nats.Connect("nats://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	streams, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	id, stored, refused := uuid.NewString(), 0, map[string]bool{}
	for i, change := range messageChanges {
		message := map[string]any{"job_id": id, "job_type": "default", "resource_id": fmt.Sprint(i),
			"url": s.url + "/health/live", "headers": map[string]string{"a": "b"},
			"tags": map[string]string{"a": "b"}, "proxy": map[string]any{"primary": "p",
				"fallbacks": []string{"q"}}, "storage": map[string]any{"bucket": "b", "key": "k",
				"metadata": map[string]string{"a": "b"}}, "manifest_key": "m", "tenant": "t",
			"trace_id": "r", "attempt": 1}
		for name := range members {
			if _, has := message[name]; !has {
				t.Errorf("the schema has the member %s, which no message has", name)
			}
		}
		message["n"] = i
		if message[change.member] = change.value; change.value == nil {
			delete(message, change.member)
		}
		text, err := json.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if schema.Validate(value) == nil {
			stored++
		} else {
			refused[fmt.Sprint(i)] = true
		}
		if _, err := streams.Publish(t.Context(), "jobs.tasks", text); err != nil {
			t.Fatal(err)
		}
	}
	awaitIngested(t, s.url, id, stored, refused)
}

// TestProducerLinesOfTheDocs: the lines of docs/producers.md start a server and publish downloads,
// which the last of them follows to their end.
func TestProducerLinesOfTheDocs(t *testing.T) {
	t.Parallel()
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(origin.Close)
	_, program := pythonOf(t, "producers.md")
	dir := filepath.Dir(program)
	if err := os.Rename(program, filepath.Join(dir, "produce.py")); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	lines := codeBlocks(t, "producers.md", "sh")
	if len(lines) != 1 {
		t.Fatalf("the page has %q", lines)
	}
	script := strings.NewReplacer("localhost:8080", address, "127.0.0.1:4222", freeAddress(t),
		"millrace serve", "millrace serve --set log.level=warn --set listen="+address,
		"https://example.org/", origin.URL+"/a", "https://example.com/", origin.URL+"/b").
		Replace(lines[0])
	c := boundedCommand(t, "bash", "-c", guidePrelude+script)
	c.Dir = dir
	c.Env = append(os.Environ(), "MILLRACE_SERVER=http://"+address)
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "completed, 2 of 2") {
		t.Errorf("%v: %s", err, out)
	}
}

// awaitIngested waits until every message is a task or a dead letter, and compares which.
func awaitIngested(t *testing.T, url, id string, stored int, refused map[string]bool) {
	t.Helper()
	c, err := client.New(client.Config{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	var total int
	deadLetters := map[string]bool{}
	pollUntil(t.Fatalf, "the end of all messages", func() bool {
		clear(deadLetters)
		for l, err := range c.FetchBox().DeadLetters(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			var message struct{ N *int }
			if err := json.Unmarshal(l.Task, &message); err == nil && message.N != nil {
				deadLetters[fmt.Sprint(*message.N)] = true // and not the failure of a download
			}
		}
		j, err := c.FetchBox().Job(t.Context(), id)
		total = j.Total
		return err == nil && total+len(deadLetters) == len(messageChanges)
	})
	if total != stored || !maps.Equal(deadLetters, refused) {
		t.Errorf("%d tasks and the dead letters %v, by the schema %d and %v of %v", total, deadLetters,
			stored, refused, messageChanges)
	}
}
