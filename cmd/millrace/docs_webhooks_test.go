package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

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
	for one, err := range c.Admin().WebhookEventTypes(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, one.Type)
	}
	if !slices.Equal(named, types) {
		t.Errorf("WH-002 docs/webhooks.md names %v, the node has %v", named, types)
	}
}
