package demo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/client"
)

// The account of the demo's graph must be able not to balance.
func TestDemoGraph(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	for _, name := range []string{"a", "b", "c", "d"} {
		if err := os.WriteFile(filepath.Join(tree, name), []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := listFiles(tree)
	if err != nil {
		t.Fatal(err)
	}
	found := newChecklist(files)
	for _, path := range files.order {
		m, err := measureFile(filepath.Join(tree, path))
		if err != nil {
			t.Fatal(err)
		}
		found.addResult(fileResult{Path: path, Run: path, fileStats: m}, 0)
	}
	order := []string{"list", "measure 1", "measure 2", "measure 2", "measure 3", "merge", "sum",
		"pack"}
	for name, corrupt := range map[string]func(g *graphRun, graph *client.TaskFlowGraph){
		"":             func(*graphRun, *client.TaskFlowGraph) {},
		"one run more": func(g *graphRun, _ *client.TaskFlowGraph) { g.runs["merge"]++ },
		"one step less": func(_ *graphRun, graph *client.TaskFlowGraph) {
			graph.Jobs = graph.Jobs[1:]
		},
		"a step is blocked": func(_ *graphRun, graph *client.TaskFlowGraph) {
			graph.Jobs[6].Status = client.TaskFlowStatusBlocked
		},
		"the sum is off": func(g *graphRun, _ *client.TaskFlowGraph) {
			mustLines(t, g.file("sum"), manifestLine{fileStats: fileStats{Size: 7}})
		},
		"a file is missing": func(g *graphRun, _ *client.TaskFlowGraph) {
			mustLines(t, g.file("manifest"), manifestLine{Path: "a"})
			if err := g.pack(); err != nil {
				t.Fatal(err)
			}
		},
		"nothing is packed": func(g *graphRun, _ *client.TaskFlowGraph) {
			os.Remove(g.file("manifest.gz"))
		},
		"too early": func(g *graphRun, _ *client.TaskFlowGraph) {
			g.completed = nil
			g.startRun("sum", []string{"merge"})
			g.runs["sum"]--
		},
	} {
		g := &graphRun{files: files, dir: t.TempDir(), runs: map[string]int{},
			completed: map[string]bool{}}
		failures := 0
		for _, step := range order {
			if err := g.step(step); err != nil {
				failures++
			}
		}
		var graph client.TaskFlowGraph
		for _, step := range graphSteps {
			node := client.TaskFlowGraphJob{Name: step.name, Status: client.TaskFlowStatusCompleted}
			if step.name == flakyStep {
				node.FailedAttempts = failures
			}
			graph.Jobs = append(graph.Jobs, node)
		}
		corrupt(g, &graph)
		g.verify(graph, found)
		if balanced := len(g.problems) == 0; balanced != (name == "") {
			t.Errorf("%q: %v", name, g.problems)
		}
	}
}

func mustLines(t *testing.T, path string, lines ...manifestLine) {
	t.Helper()
	if err := writeLines(path, lines); err != nil {
		t.Fatal(err)
	}
}
