package main

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// WH-002: docs/webhooks.md names every type of events of a node with all contracts, and no other.
func TestEventTypesOfTheDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| type | when |")
	if !found {
		t.Fatal("docs/webhooks.md has no table of types")
	}
	var named []string
	for _, name := range regexp.MustCompile("`([a-z]+(?:\\.[a-z]+)+)`").FindAllStringSubmatch(table,
		-1) {
		named = append(named, name[1])
	}
	slices.Sort(named)
	s := launchNode(t, "data", "--set", "operator.token=secret")
	c, err := client.New(client.Config{BaseURL: s.url, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	examples := map[string][]byte{}
	for one, err := range c.Admin().WebhookEventTypes(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, one.Type)
		examples[one.Type] = one.Example
	}
	if !slices.Equal(named, types) {
		t.Errorf("WH-002 docs/webhooks.md names %v, the node has %v", named, types)
	}
	checkEventBodies(t, examples)
}

// checkEventBodies checks that the bodies of the page have the members that events have: one of a
// client of ForgeRun, and one of operators, by the example that the node gives of its type.
func checkEventBodies(t *testing.T, examples map[string][]byte) {
	t.Helper()
	bodies := codeBlocks(t, "webhooks.md", "json")
	if len(bodies) != 2 {
		t.Fatalf("docs/webhooks.md has %d bodies", len(bodies))
	}
	strict := json.NewDecoder(strings.NewReader(bodies[0]))
	strict.DisallowUnknownFields()
	var e client.ForgeRunWebhookEvent
	if err := strict.Decode(&e); err != nil || e.Scenario == "" || e.OccurredAt.IsZero() {
		t.Errorf("FR-150 the body of a client is %+v: %v", e, err)
	}
	var got, want struct {
		Type      string
		Timestamp time.Time
		Data      map[string]any
	}
	err := json.Unmarshal([]byte(bodies[1]), &got)
	if err = errors.Join(err, json.Unmarshal(examples[got.Type], &want)); err != nil {
		t.Fatalf("WH-003 an event of type %q: %v", got.Type, err)
	}
	members := func(of map[string]any) []string { return slices.Sorted(maps.Keys(of)) }
	if !slices.Equal(members(got.Data), members(want.Data)) {
		t.Errorf("WH-003 the page has %v, the node %v", members(got.Data), members(want.Data))
	}
}
