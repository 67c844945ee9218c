package graph

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
)

func TestDrawGraph(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edges string // "a>b a>c"
		want  []string
	}{
		"G-TF-36 one":     {"a", []string{"●"}},
		"G-TF-36 chain":   {"a>b b>c", []string{"●", "●", "●"}},
		"G-TF-36 diamond": {"a>b a>c b>d c>d", []string{"●", "├─╮", "● │", "│ ●", "├─╯", "●"}},
		"G-TF-36 fan out and in": {"a>b a>c a>d b>e c>e d>e",
			[]string{"●", "├─┬─╮", "● │ │", "│ ● │", "├─╯ │", "│   ●", "├───╯", "●"}},
		"G-TF-36 behind another": {"a>b a>c a>d b>e d>e c>f",
			[]string{"●", "├─┬─╮", "● │ │", "│ ● │", "│ ● │", "│   ●", "├───╯", "●"}},
		"G-TF-36 apart":   {"a b", []string{"●", "●"}},
		"G-TF-36 a cycle": {"a>b b>a", []string{"●", "●"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var g client.TaskFlowGraph
			visited := map[string]bool{}
			for _, edge := range strings.Fields(tc.edges) {
				from, to, ok := strings.Cut(edge, ">")
				for _, id := range []string{from, to} {
					if id != "" && !visited[id] {
						visited[id] = true
						g.Jobs = append(g.Jobs,
							client.TaskFlowGraphJob{ID: id, Name: id, Queue: "q",
								Status: client.TaskFlowStatusCompleted})
					}
				}
				if ok {
					g.Edges = append(g.Edges, client.TaskFlowEdge{From: from, To: to})
				}
			}
			var got []string
			for line := range strings.Lines(Draw(g, "", false)) {
				rails := strings.TrimSuffix(line, "\n")
				if at := strings.IndexAny(rails, "abcdef"); at >= 0 {
					rails = rails[:at]
				}
				got = append(got, strings.TrimRight(rails, " "))
			}
			if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

// Names are others' text: nothing of them may move the cursor.
func TestDrawGraph_names(t *testing.T) {
	t.Parallel()
	g := client.TaskFlowGraph{Jobs: []client.TaskFlowGraphJob{{ID: "1", Name: "a\x1b[2J",
		Status: client.TaskFlowStatusReady}}}
	if got := Draw(g, "1", true); strings.Contains(got, "\x1b") ||
		!strings.HasPrefix(got, `O  "a\x1b[2J"  READY`) {
		t.Errorf("got %q", got)
	}
}
