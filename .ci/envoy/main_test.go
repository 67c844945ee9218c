package main

import (
	"os"
	"strings"
	"testing"
)

// What Envoy would refuse is found, wherever it stands in the configuration of the page.
func TestCheck(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/proxies.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ old, new, want string }{
		"as it is":                {"", "", ""},
		"an unknown member":       {"merge_slashes", "merge_slash", `unknown field "merge_slash"`},
		"an unknown value":        {"KEEP_UNCHANGED", "KEEP", "invalid value for enum"},
		"an unknown type":         {"v3.Router", "v3.Route", "unable to resolve"},
		"a value that is refused": {"stat_prefix: millrace", `stat_prefix: ""`, "StatPrefix"},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir() + "/page.md"
			text := strings.Replace(string(page), c.old, c.new, 1)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			err := checkPage(path)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
