package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// operatedServer is a server with the settings of its machine, on which the commands of
// docs/operating.md are run.
type operatedServer struct {
	*testing.T
	server   *launchedServer
	dir      string // of the settings; the commands run in it
	receiver string // a URL that accepts everything
	client   *client.Client
	count    int
}

// newOperatedServer starts a server of all contracts on SQLite.
func newOperatedServer(t *testing.T) *operatedServer {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(receiver.Close)
	w := &operatedServer{T: t, dir: t.TempDir(), receiver: receiver.URL}
	w.server = launchIn(t, filepath.Join(w.dir, "data"), "--set", "log.level=warn")
	settings := fmt.Sprintf("data_dir = %q\nlisten = %q\n", filepath.Join(w.dir, "data"),
		strings.TrimPrefix(w.server.url, "http://"))
	mustWriteFile(t, w.dir, "millrace.toml", []byte(settings))
	var err error
	if w.client, err = client.New(client.Config{BaseURL: w.server.url}); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, w.server.url)
	return w
}

// must ends the test with an error.
func (w *operatedServer) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// token is the operator's token as it is now.
func (w *operatedServer) token() string {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "data", "operator.token"))
	w.must(err)
	return strings.TrimSpace(string(text))
}

// admin is the admin API with the token as it is now.
func (w *operatedServer) admin() *client.Admin {
	w.Helper()
	c, err := client.New(client.Config{BaseURL: w.server.url, Token: w.token()})
	w.must(err)
	return c.Admin()
}

// submit stores a job of TaskFlow in a queue and returns its number.
func (w *operatedServer) submit(queue string, attempts int) int64 {
	w.Helper()
	j, err := w.admin().SubmitJob(w.Context(), client.AdminSubmission{Contract: "taskflow",
		Request: fmt.Appendf(nil, `{"name":"n","queue":%q,"retry_policy":{"max_attempts":%d,`+
			`"backoff_strategy":"FIXED","base_delay_seconds":60,"max_delay_seconds":60}}`,
			queue, attempts)})
	w.must(err)
	return j.Number
}

// own is the name of a queue of one job.
func (w *operatedServer) own() string {
	w.count++
	return fmt.Sprint("own", w.count)
}

// claim claims the job of a queue.
func (w *operatedServer) claim(queue string) client.ClaimedJob {
	w.Helper()
	jobs, err := w.client.WorkerAPI().Claim(w.Context(), client.ClaimQuery{Contract: "taskflow",
		Queues: []string{queue}, Worker: "host:1"}, 0)
	w.must(err)
	if len(jobs) != 1 {
		w.Fatalf("claimed %d jobs of %s", len(jobs), queue)
	}
	return jobs[0]
}

// fail stores a job whose first attempt fails, one of some, and returns its number and queue.
func (w *operatedServer) fail(attempts int) (number int64, queue string) {
	w.Helper()
	queue = w.own()
	number = w.submit(queue, attempts)
	w.must(w.client.WorkerAPI().Fail(w.Context(), w.claim(queue).RunID,
		client.JobFailure{Error: "boom", Retryable: true}))
	return number, queue
}

// number returns the number of a job that a command of millrace can do its work on.
func (w *operatedServer) number(command string) int64 {
	w.Helper()
	var number int64
	switch {
	case strings.Contains(command, " release "):
		queue := w.own()
		number = w.submit(queue, 1)
		w.claim(queue)
	case strings.Contains(command, " run-now "):
		number, _ = w.fail(2)
	case strings.Contains(command, " rerun "):
		number, _ = w.fail(1)
	default:
		number = w.submit("mail", 1)
	}
	return number
}

// deadLetter makes a dead letter.
func (w *operatedServer) deadLetter() client.AdminDeadLetter {
	w.Helper()
	_, queue := w.fail(1)
	for l, err := range w.admin().DeadLetters(w.Context(), client.AdminDeadLetterFilter{
		Contract: "taskflow", Queue: queue}) {
		w.must(err)
		return l
	}
	w.Fatalf("there is no dead letter of %s", queue)
	return client.AdminDeadLetter{}
}

// bulk starts a bulk operation that lasts, and pauses it.
func (w *operatedServer) bulk() string {
	w.Helper()
	queue := w.own()
	for range 30 {
		w.submit(queue, 1)
	}
	id, err := w.admin().StartBulkOperation(w.Context(), client.AdminBulkRequest{Action: "cancel", RatePerSecond: 1,
		Filter: client.AdminFilter{Queue: queue}})
	w.must(err)
	_, err = w.admin().PauseBulkOperation(w.Context(), id)
	w.must(err)
	return id
}

// schedule makes a schedule.
func (w *operatedServer) schedule() string {
	w.Helper()
	contract, every, name := "taskflow", "1h", w.own()
	_, err := w.admin().CreateSchedule(w.Context(), name, client.AdminScheduleSpec{
		Contract: &contract, Every: &every, Request: json.RawMessage(`{"name":"n","queue":"mail"}`)})
	w.must(err)
	return name
}

// forge makes a client of ForgeRun with a key.
func (w *operatedServer) forge() (clientID string, key client.ForgeRunIssuedAPIKey) {
	w.Helper()
	clientID, err := w.client.ForgeRun().CreateClient(w.Context(), "")
	w.must(err)
	key, err = w.client.ForgeRun().CreateFirstAPIKey(w.Context(), clientID)
	w.must(err)
	return clientID, key
}

// webhook registers a webhook: of the operators where a command is about its secret, else of a
// client.
func (w *operatedServer) webhook(command string) string {
	w.Helper()
	if strings.Contains(command, " rotate-secret ") {
		made, _, err := w.admin().CreateWebhook(w.Context(),
			client.AdminWebhookSpec{URL: &w.receiver, Events: []string{"queue.*"}}, "")
		w.must(err)
		return made.ID
	}
	_, key := w.forge()
	h, err := w.client.ForgeRun().WithAPIKey(key.APIKey).CreateWebhook(w.Context(), w.receiver,
		[]client.ForgeRunEventName{client.ForgeRunEventJobFailed}, "")
	w.must(err)
	return h.ID
}

// worker makes the server know a worker.
func (w *operatedServer) worker() string {
	w.Helper()
	_, err := w.client.WorkerAPI().Claim(w.Context(), client.ClaimQuery{Contract: "taskflow",
		Queues: []string{"none"}, Worker: "host:1"}, 0)
	w.must(err)
	return "host:1"
}

// node is the name of the server, once it is listed.
func (w *operatedServer) node() (name string) {
	w.Helper()
	pollUntil(w.Fatalf, "the node to be listed", func() bool {
		for n, err := range w.admin().Nodes(w.Context()) {
			name = n.Name
			return err == nil
		}
		return false
	})
	return name
}

// download submits a job of FetchBox.
func (w *operatedServer) download() string {
	w.Helper()
	manifest, err := client.FetchBoxManifest{Resources: []client.FetchBoxResource{{ID: "a",
		URL: w.receiver}}}.Encode()
	w.must(err)
	receipt, err := w.client.FetchBox().Submit(w.Context(), client.FetchBoxSpec{Type: "default",
		Manifest: manifest})
	w.must(err)
	return receipt.JobID
}

// placeholders are the words of commands that stand for names.
var placeholders = regexp.MustCompile(`\b(CLIENT/KEY|CONTRACT/QUEUE|NUMBER|dlq [a-z]+ ID|` +
	`FINGERPRINT|BULK|SCHEDULE|ticks NAME|WEBHOOK|CLIENT|WORKER|NODE|QUEUE|JOB|CONTRACT|FILE|` +
	`DATA_DIR)\b|-- COMMAND$`)

// fill puts names into a command. Each is of something that was made for it.
func (w *operatedServer) fill(command string) string {
	return placeholders.ReplaceAllStringFunc(command, func(word string) string {
		if verb, ok := strings.CutSuffix(word, " ID"); ok {
			return fmt.Sprint(verb, " ", w.deadLetter().ID)
		}
		switch word {
		case "CLIENT/KEY":
			id, key := w.forge()
			return id + "/" + key.ID
		case "CONTRACT/QUEUE":
			w.submit("mail", 1) // a queue that had no job is not known
			return "taskflow/mail"
		case "NUMBER":
			return fmt.Sprint(w.number(command))
		case "FINGERPRINT":
			return w.deadLetter().Fingerprint
		case "BULK":
			return w.bulk()
		case "SCHEDULE":
			return w.schedule()
		case "ticks NAME":
			return "ticks " + w.schedule()
		case "CONTRACT":
			return "taskflow"
		case "FILE":
			mustWriteFile(w.T, w.dir, "graph.json", []byte(`{"jobs":[{"ref":"a","queue":"mail"}]}`))
			return "graph.json"
		case "DATA_DIR":
			return "data"
		case "-- COMMAND":
			return "--until-empty -- true"
		case "WEBHOOK":
			return w.webhook(command)
		case "CLIENT":
			id, _ := w.forge()
			return id
		case "WORKER":
			return w.worker()
		case "NODE":
			return w.node()
		case "QUEUE":
			return "mail"
		}
		return w.download()
	})
}

// named finds commands that read the server's address from the environment alone. The others find
// it by the settings of its machine.
var named = regexp.MustCompile(`^millrace (work|fetch|graph) `)

// run runs a command as a shell does, in the folder of the settings.
func (w *operatedServer) run(command string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), testTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-c", "set -eo pipefail\n"+
		`curl() { command curl --fail "$@"; }`+"\n"+command)
	c.Dir = w.dir
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "URL=" + w.server.url,
		"TOKEN=" + w.token()}
	if named.MatchString(command) {
		c.Env = append(c.Env, "MILLRACE_SERVER="+w.server.url)
	}
	c.Stdin = strings.NewReader(w.token() + "\n")
	c.WaitDelay = time.Second
	if out, err := c.CombinedOutput(); err != nil {
		w.Errorf("%s: %v: %s", command, err, out)
	}
}

// codeSpans are the commands that stand in a line of text.
var codeSpans = regexp.MustCompile("`((?:millrace|curl|df) [^`]+)`")

// commandsOf returns the commands of a page and those in the text of others, each once: the lines
// of the page's blocks, and what stands in the text.
func commandsOf(page string, others ...string) (all []string) {
	add := func(command string) {
		command = strings.Join(strings.Fields(command), " ")
		if command != "" && !slices.Contains(all, command) {
			all = append(all, command)
		}
	}
	for _, block := range shellBlocks.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			command, _, _ := strings.Cut(line, " # ")
			add(command)
		}
	}
	for _, page := range append([]string{page}, others...) {
		text := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(page, "")
		for _, span := range codeSpans.FindAllStringSubmatch(text, -1) {
			add(span[1])
		}
	}
	return all
}

// operatedPages are those whose commands in the text TestCommandsOfOperating runs.
var operatedPages = []string{"docs/operating.md", "docs/recipes.md", "docs/coming-from.md",
	"docs/security.md"}

// CL-001: every command of docs/operating.md, and in the text of pages that are about the same,
// does what the page has it for, on a running server, with the names of things that are there. The
// page has no SQL.
func TestCommandsOfOperating(t *testing.T) {
	t.Parallel()
	pages := documents(t)
	page := pages["docs/operating.md"]
	if found := regexp.MustCompile(`(?i)psql|\bsqlite3 |\bvacuum\b|\bselect\b.*\bfrom\b|\bupdate\b.*\bset\b|` +
		`\bdelete from\b|\binsert into\b|\balter (role|table)\b|` + "```sql").FindString(
		page); found != "" {
		t.Errorf("the page has SQL: %q", found)
	}
	w := newOperatedServer(t)
	more := map[string]string{ // what has no terminal, or would go on, needs
		"millrace login":                                           ` --server "$URL" --name other`,
		"millrace logout":                                          " --name other",
		"millrace work --contract taskflow QUEUE":                  " --until-empty -- true",
		"millrace queues clear CONTRACT/QUEUE":                     " --yes",
		"millrace dlq replay --fingerprint FINGERPRINT --canary 5": " --yes",
	}
	stopped := regexp.MustCompile(`^millrace (migrate|operator recover)\b`)
	var last []string
	var others []string
	for _, name := range operatedPages[1:] {
		others = append(others, pages[name])
	}
	commands := commandsOf(page, others...)
	for command, test := range inlineCommands { // of further pages
		if test == "TestCommandsOfOperating" && !slices.Contains(commands, command) {
			commands = append(commands, command)
		}
	}
	if len(commands) < 70 {
		t.Errorf("the page has %d commands: %q", len(commands), commands)
	}
	for _, command := range commands {
		switch {
		case command == "millrace serve": // which is what the server was started by
			continue
		case command == "millrace top": // which needs the terminal that TestTop gives it
			continue
		case stopped.MatchString(command):
			last = append(last, w.fill(command))
			continue
		}
		w.run(w.fill(command) + more[command])
		if drained := strings.Contains(command, " drain "); drained {
			w.run(strings.Replace(w.fill(command), " drain ", " resume ", 1))
		}
	}
	if err := w.server.terminate(); err != nil {
		t.Fatal(err)
	}
	for _, command := range last {
		w.run(command)
	}
}
