package console

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/admin"
)

// liveNames finds the live parts of a page.
var liveNames = regexp.MustCompile(`data-live="([a-z]+)"`)

// A list that is empty has the live parts of one that is not, so that it fills with all that
// belongs to it: rows, actions and the next page.
func TestLivePartsOfEmptyLists(t *testing.T) {
	t.Parallel()
	filled := map[string]any{
		"jobs": jobsPage{Live: true, NextPage: "/console/jobs?cursor=x", JobPage: admin.JobPage{
			Items: []admin.JobItem{{Number: 1, Contract: "taskflow", Queue: "mail"}}}},
		"queues": queuesPage{Queues: []queueRow{{}}},
	}
	for name, empty := range map[string]any{"jobs": jobsPage{Live: true}, "queues": queuesPage{}} {
		var parts [2][]string
		for i, page := range []any{empty, filled[name]} {
			var text bytes.Buffer
			err := New(nil).templates[name].Execute(&text, view{Name: name, Page: page})
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range liveNames.FindAllStringSubmatch(text.String(), -1) {
				parts[i] = append(parts[i], found[1])
			}
			_, lists, _ := strings.Cut(text.String(), `data-live="`+name+`"`)
			lists, actions, _ := strings.Cut(lists, `data-live="act"`)
			hasRow := strings.Contains(lists, "<tr data-row")
			if hasRow != (i == 1) {
				t.Errorf("%s: a live part has rows: %t", name, hasRow)
			}
			if name == "jobs" && (strings.Contains(actions, `class="bar panel act"`) != hasRow ||
				strings.Contains(lists, `rel="next"`) != hasRow ||
				strings.Contains(lists, `name="mark" value="1" autocomplete="off"`) != hasRow) {
				t.Errorf("the list of jobs lacks what belongs to its rows: %s%s", lists, actions)
			}
		}
		if len(parts[0]) == 0 || !slices.Equal(parts[0], parts[1]) {
			t.Errorf("%s has the live parts %q while it is empty, and %q then", name, parts[0], parts[1])
		}
	}
}
