package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/webhook"
)

// guide is a page whose commands are run in their order, by one shell. An answer that is no
// success fails, and so does a command.
type guide struct {
	page string
	omit []string // blocks with one of these texts, which others run
	text []string // how commands in the text begin that come after the blocks
	edit []string // pairs of what the page has for a reader and what a test needs
	want []string // what is printed
}

// guidePrelude is what the commands of guides may use besides their own. failed prints the id of a
// job that has failed, in a queue of its own.
const guidePrelude = `set -eo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
curl() { command curl --no-progress-meter --fail "$@"; }
json() { grep -o "\"$1\":\"[^\"]*\"" | cut -d'"' -f4; }
post() { curl -s -H 'Content-Type: application/json' "$@"; }
failed() {
  Q=f$(date +%s%N)
  post localhost:8080/api/v1/jobs \
    -d '{"name":"f","queue":"'$Q'","retry_policy":{"max_attempts":1}}' | json id
  RUN=$(post localhost:8080/worker/v1/claims \
    -d '{"contract":"taskflow","queues":["'$Q'"]}' | json run_id)
  post localhost:8080/worker/v1/runs/$RUN/fail -d '{"error":"no","retryable":false}' >/dev/null
}
`

// runGuides are the pages. ORIGIN is a server that has one page, at its root, and never answers
// /slow. SECOND is the address of another server.
var runGuides = []guide{
	{page: "README.md", omit: []string{"go run ", "go build ", "millrace serve"},
		edit: []string{"millrace work mail", "millrace work mail --until-empty"},
		want: []string{"202 Accepted", "b@example.com"}},
	{page: "docs/start.md", omit: []string{"curl", "go build ", "go mod ", "go run ", "npm ",
		"PYTHONPATH", "tar ", "venv"},
		want: []string{"relay/letters", "No worker has ever asked for jobs of queue relay/letters.",
			`{"to":"bob"}`, "/console"}},
	{page: "docs/forgerun.md", omit: []string{"CLIENT=", "millrace work"},
		edit: []string{"127.0.0.1:8081", "SECOND", "--duration 20s", "--duration 2s"},
		want: []string{"The accounts balance."}},
	{page: "docs/relay.md",
		edit: []string{"# The oldest first", `
post localhost:8080/v2/queues/jobs \
  -d '[{"queue":"mail","id":"gone","timeout":1,"max_retries":0,"payload":1}]'
curl -s localhost:8080/v2/queues/mail/jobs
DEAD_LETTERS=localhost:8080/v2/queues/mail/dead-letters
until ID=$(curl -s $DEAD_LETTERS | grep -oE '"id":[0-9]+' | cut -d: -f2)
do sleep 0.2; done
#`, "dead-letters/7/replay", "dead-letters/$ID/replay",
			"millrace work mail", "millrace work mail --until-empty",
			"tail -f jobs.jsonl | millrace enqueue --retry-for 24h -", `
job() { echo '{"queue":"followed","id":"'$1'","timeout":60,"payload":1}' >> jobs.jsonl; }
arrived() { until curl -s localhost:8080/v2/queues/followed/jobs | grep '"id":"'$1'"'
do sleep 0.2; done; }
job 1; tail -f jobs.jsonl | millrace enqueue --retry-for 24h - & arrived 1; job 2; arrived 2`},
		text: []string{"tail "},
		want: []string{`"known":false`, "b@example.com", "1 job accepted"}},
	{page: "docs/taskflow.md", omit: []string{"go mod edit"},
		edit: []string{"graph submit --wait", "graph submit",
			"curl -s -X POST $JOBS/$B/rerun ", "B=$(failed); curl -s -X POST $JOBS/$B/rerun ",
			"curl -s -X POST $JOBS/$B/graph/rerun", "B=$(failed); curl -s -X POST $JOBS/$B/graph/rerun",
			"millrace graph rerun $B", "B=$(failed); millrace graph rerun $B",
			"--concurrency 4 --", "--concurrency 4 --until-empty --"},
		text: []string{"curl "},
		want: []string{`taskflow_queue_jobs{`, `"status":"PENDING"`, `got {"from":"a"}, attempt 1`}},
	{page: "docs/workers.md", omit: []string{"a.csv"},
		edit: []string{"curl -s localhost:8080/worker/v1/claims", `
for i in 1 2 3; do post localhost:8080/api/v1/jobs -d '{"name":"n","queue":"etl"}'; done
set -- $(curl -s localhost:8080/worker/v1/claims`, `"max":3}'`,
			`"max":3}' | json run_id); RUN1=$1; RUN2=$2; RUN3=$3`},
		want: []string{`"status":"COMPLETED"`, `"status":"FAILED"`}},
	{page: "docs/schedules.md",
		edit: []string{"CLIENT_ID", "$(curl -s -X POST localhost:8080/v1/clients | json client_id)",
			"taskflow -- cat", "taskflow --until-empty -- cat"},
		want: []string{"nightly", "report"}},
	{page: "docs/performance-contracts.md",
		edit: []string{"seq 0 9999", "seq 0 59", "sleep 120;",
			"until millrace schedules list --limit 0 --jsonl | grep '\"latest\":{'; do sleep 0.2; done;",
			"a[NR]}'", "a[NR]}' | grep -E '[0-9]$' && echo late by so much"},
		want: []string{"late by so much"}},
	{page: "docs/webhooks.md",
		edit: []string{"millrace webhooks add", "HOOK=$(millrace webhooks add", "queue.*'\n",
			"queue.*' | sed 's/ .*//;q')\n", "019a…", "$HOOK"},
		want: []string{`"secret":"whsec_`, "whsec_"}},
	{page: "docs/images.md",
		edit: []string{"# A variant, by its size", `
until curl -s localhost:8080/images/v1/files/$FILE | grep '"status":"ready"'; do sleep 0.2; done
#`},
		text: []string{"curl "},
		want: []string{`"status":"ready"`, "photo.jpg", `"status":"queued"}`}},
	{page: "docs/fetchbox.md",
		edit: []string{"https://example.org/none", "ORIGIN/none || test $? = 1",
			"https://example.org/", "ORIGIN/", "# End a job", `
JOB=$(post localhost:8080/jobs -H 'X-Fetchbox-Job-Type: default' -d '{"manifest_version":"v1",
  "metadata":{},"resources":[{"id":"slow","url":"ORIGIN/slow"}]}' | json job_id)
until curl -s localhost:8080/operators/jobs/$JOB | grep in_progress; do sleep 0.2; done
#`},
		want: []string{"none", "CANCELED"}},
}

// script returns the commands of a guide.
func (g guide) script(t *testing.T, text string) string {
	t.Helper()
	commands := ""
	for _, block := range shellBlocks.FindAllStringSubmatch(text, -1) {
		if !slices.ContainsFunc(g.omit, func(part string) bool {
			return strings.Contains(block[1], part)
		}) {
			commands += block[1]
		}
	}
	for _, beginning := range g.text {
		commands += inlineCommand(t, g.page, beginning) + "\n"
	}
	for i := 0; i < len(g.edit); i += 2 {
		if !strings.Contains(commands, g.edit[i]) {
			t.Fatalf("%s has no %q", g.page, g.edit[i])
		}
	}
	return guidePrelude + strings.NewReplacer(g.edit...).Replace(commands)
}

// TestGuidesOfTheDocs runs the commands of the guides, each page on a server of its own.
func TestGuidesOfTheDocs(t *testing.T) {
	t.Parallel()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
		case "/slow":
			<-r.Context().Done()
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(origin.Close)
	for _, g := range runGuides {
		t.Run(g.page, func(t *testing.T) {
			r := newReader(t)
			if err := os.Symlink(filepath.Join(r.root, "internal"), filepath.Join(r.app,
				"internal")); err != nil { // the guide to Images is for a copy of the repository
				t.Fatal(err)
			}
			script := strings.NewReplacer("ORIGIN", origin.URL, "SECOND", freeAddress(t)).Replace(
				g.script(t, documents(t)[g.page]))
			out := r.run(tabbed{g.page, "curl", script}, "", false)
			for _, want := range g.want {
				if !strings.Contains(out, want) {
					t.Errorf("%s does not print %q:\n%s", g.page, want, out)
				}
			}
		})
	}
}

// TestGenuineOfTheDocs: the function of docs/webhooks.md takes what Millrace has signed, and
// nothing else.
func TestGenuineOfTheDocs(t *testing.T) {
	t.Parallel()
	python, file := pythonOf(t, "webhooks.md")
	const secret, body = "whsec_MDEyMzQ1Njc4OWFiY2RlZg==", `{"event_id":"1"}`
	header := http.Header{}
	if err := webhook.Sign(header, secret, "id", time.Unix(1_700_000_000, 0), []byte(body)); err !=
		nil {
		t.Fatal(err)
	}
	headers := "{"
	for name := range header {
		headers += fmt.Sprintf("%q: %q, ", strings.ToLower(name), header.Get(name))
	}
	code := fmt.Sprintf("import sys; sys.path.insert(0, %q); from program import genuine\n"+
		"headers, body = %s}, %q.encode()\n"+
		"print(genuine(%q, headers, body), genuine(%[4]q, headers, body + b' '))\n",
		filepath.Dir(file), headers, body, secret)
	out, err := exec.CommandContext(t.Context(), python, "-c", code).CombinedOutput()
	if err != nil || string(out) != "True False\n" {
		t.Errorf("%v: %s", err, out)
	}
}
