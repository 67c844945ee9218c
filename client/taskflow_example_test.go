package client_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/millrace/millrace/client"
)

// step is what a job of the example works on: files, by path.
type step struct {
	From []string `json:"from"`
	To   string   `json:"to"`
}

// A small ETL graph over files: two regions' sales are cleaned at the same time, each on its own,
// and summed up when both are there. A file that is missing or has no sales in it fails its job for
// good, which blocks the sum.
func ExampleTaskFlow_Submit() {
	baseURL, stop, err := serveFlow()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	folder, err := os.MkdirTemp("", "etl")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	file := func(name string) string { return filepath.Join(folder, name) }
	for name, text := range map[string]string{"north.csv": "pears, 3\n\napples,4\n",
		"south.csv": "apples,5\n# end\n"} {
		if err := os.WriteFile(file(name), []byte(text), 0o600); err != nil {
			fmt.Println(err)
			return
		}
	}

	c, err := client.New(client.Config{BaseURL: baseURL})
	if err != nil {
		fmt.Println(err)
		return
	}
	var g client.TaskFlowGraphBuilder
	job := func(name, queue string, s step, after ...string) string {
		payload := fmt.Appendf(nil, `{"from":[%q`, s.From[0])
		for _, from := range s.From[1:] {
			payload = fmt.Appendf(payload, ",%q", from)
		}
		payload = fmt.Appendf(payload, `],"to":%q}`, s.To)
		return g.Add(name, client.TaskFlowSpec{Name: name, Queue: queue, Payload: payload},
			after...)
	}
	north := job("clean north", "clean", step{[]string{file("north.csv")}, file("north.clean")})
	south := job("clean south", "clean", step{[]string{file("south.csv")}, file("south.clean")})
	sum := job("sum", "sum", step{[]string{file("north.clean"), file("south.clean")}, file("sum")},
		north, south)
	ids, err := c.TaskFlow().SubmitGraph(context.Background(), &g)
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, end := context.WithCancel(context.Background())
	worker := client.JobWorker{API: c.WorkerAPI(), Contract: client.ContractTaskFlow,
		Concurrency: 2,
		Handlers: map[string]client.JobHandler{"clean": client.TypedJob(cleanSales),
			"sum": client.TypedJob(sumSales)}}
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()
	graph, err := c.TaskFlow().WaitGraph(ctx, ids[sum])
	end()
	fmt.Println("worker:", <-done, "graph:", err, len(graph.Jobs), "jobs")
	text, err := os.ReadFile(file("sum"))
	fmt.Println(string(text), err)
	// Output:
	// worker: <nil> graph: <nil> 3 jobs
	// apples=9 pears=3 <nil>
}

// cleanSales keeps the sales, and reports how many there are.
func cleanSales(_ context.Context, _ *client.JobRun, s step) (int, error) {
	text, err := os.ReadFile(s.From[0])
	if err != nil {
		return 0, client.Final(err)
	}
	var clean bytes.Buffer
	kept := 0
	for line := range strings.Lines(string(text)) {
		what, amount, ok := strings.Cut(strings.TrimSpace(line), ",")
		if n, err := strconv.Atoi(strings.TrimSpace(amount)); ok && err == nil {
			fmt.Fprintf(&clean, "%s %d\n", what, n)
			kept++
		}
	}
	if kept == 0 {
		return 0, client.Final(fmt.Errorf("%s has no sales", s.From[0]))
	}
	return kept, os.WriteFile(s.To, clean.Bytes(), 0o600) // another try may succeed
}

// sumSales adds up what was sold.
func sumSales(_ context.Context, _ *client.JobRun, s step) (map[string]int, error) {
	sums := map[string]int{}
	for _, name := range s.From {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			var what string
			var n int
			if _, err := fmt.Sscan(lines.Text(), &what, &n); err != nil {
				return nil, client.Final(err)
			}
			sums[what] += n
		}
	}
	return sums, os.WriteFile(s.To, fmt.Appendf(nil, "apples=%d pears=%d", sums["apples"],
		sums["pears"]), 0o600)
}
