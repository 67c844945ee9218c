package console

import "testing"

// Every template is read, so a wrong one is found here.
func TestTemplates(t *testing.T) {
	t.Parallel()
	for _, p := range New(nil).Pages() {
		if p.Handle == nil || p.Action == "" {
			t.Errorf("%s %s lacks something", p.Method, p.Pattern)
		}
	}
}
