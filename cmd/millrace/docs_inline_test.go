package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// allPages are all Markdown pages of the repository for readers, with their text: the guides, the
// map of the code, the changes, the decisions and the page of bench.
func allPages(t *testing.T) map[string]string {
	t.Helper()
	all := guides(t)
	files, err := filepath.Glob("../../docs/decisions/*.md")
	if err != nil || len(files) < 90 {
		t.Fatal(len(files), err)
	}
	for _, file := range append(files, "../../ARCHITECTURE.md", "../../CHANGELOG.md",
		"../../bench/README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(filepath.ToSlash(file), "../../")] = string(text)
	}
	return all
}

// inlineCommands are the commands in the text of guides that stand in no block, by what runs them:
// a test that reads their page, or why none does. Names of one command of millrace are not among
// them, nor commands that last for minutes or are what the checks do themselves (checkedNames).
var inlineCommands = map[string]string{
	"apt-get install beanstalkd":      "not run: a peer, for who measures beside it",
	"apt-get install rabbitmq-server": "not run: a peer, for who measures beside it",
	"brew services start millrace":    "not run: Homebrew is for macOS",
	"curl 'localhost:8080/images/v1/files?sizes=100' -H 'Content-Type: image/jpeg' --data-binary " +
		"@photo.jpg": "TestGuidesOfTheDocs",
	"curl -s localhost:8080/metrics/taskflow":     "TestGuidesOfTheDocs",
	"curl -s --http2-prior-knowledge $URL/health": "TestCommandsOfOperating",
	"docker build":                 "not run: the tests have no Docker; TestImage builds the same by buildah",
	"podman build --format docker": "TestImageInPodman",
	"systemd-analyze verify --man=no deploy/millrace.service": "TestUnit",
	"git grep -ilw priority":                                  "TestSearchesOfTheArchitecture",
	"git grep -il --all-match -e forgerun -e images -e fetchbox -e taskflow": "TestSearchesOfThe" +
		"Architecture",
	"go mod tidy && go run .":                          "TestStartOfTheDocs",
	"python3 etl.py":                                   "TestWorkersOfTheDocs",
	"millrace workers drain NAME":                      "TestWorkersOfTheDocs",
	"millrace completion --help":                       "TestCommandsOfOperating",
	"millrace dlq list --contract webhook":             "TestCommandsOfOperating",
	"millrace graph submit FILE":                       "TestCommandsOfOperating",
	"millrace health --live":                           "TestCommandsOfOperating",
	"millrace inbox list --state waiting":              "TestTransactionsOfTheDocs",
	"millrace operator secret CONTRACT":                "TestCommandsOfOperating",
	"millrace schedules ticks NAME":                    "TestCommandsOfOperating",
	"millrace work etl --contract taskflow -- COMMAND": "TestCommandsOfOperating",
	"millrace work --contract images ARGUMENTS process_file delete_file -- docs/thumbs.sh": "TestImagesWork",
	"patronictl -c patroni.yml switchover --force":                                         "TestScalingPatroni",
	"pg_dumpall --roles-only":                                 "TestBackupOfTheDocs",
	"tail -f jobs.jsonl | millrace enqueue --retry-for 24h -": "TestGuidesOfTheDocs",
}

// inlineProgram begins the text of a command. What is alike and none, such as a name of a load of
// bench, has another first word.
var inlineProgram = regexp.MustCompile(`^(?:[A-Z_]+=\S* )*(?:cd \S+ && )?(?:sudo )?` +
	`(apt|apt-get|aws|brew|buildah|caddy|chronyc|curl|df|docker|du|export|git|go|iostat|journalctl|` +
	`kubectl|make|millrace|nats|nginx|node|npm|npx|openssl|patronictl|pg_dump|pg_dumpall|perf|pgrep|pip|` +
	`podman|promtool|psql|python3|sha256sum|sqlite3|systemctl|systemd-analyze|tail|tar|timedatectl|vips|wrk) \S`)

// checkedNames finds commands that last for minutes, or are what the checks do themselves. Tests
// see that what they name is there: TestGoTestsOfTheDocs, TestMakeOfTheDocs, TestCommandsOfThePage
// of torture and TestCommandsOfThePages of bench.
var checkedNames = regexp.MustCompile(`^(?:[A-Z_]+=\S* )*(?:cd \S+ && )?(?:go test|go run|go build|` +
	`go doc|make) `)

// isName reports whether a text is the name of a command of millrace, without any argument, or of
// several. TestCommandLinesOfTheDocs sees that it is there.
func isName(root *cobra.Command, text string) bool {
	words, isMillrace := strings.CutPrefix(text, "millrace ")
	if !isMillrace || regexp.MustCompile(`\w\|\w`).MatchString(words) {
		return isMillrace
	}
	_, rest, err := root.Find(strings.Fields(words))
	return err == nil && len(rest) == 0
}

// inlineCommand is the command in the text of a page that begins in some way.
func inlineCommand(t *testing.T, page, beginning string) string {
	t.Helper()
	for _, text := range spansOf(documents(t)[page]) {
		if strings.HasPrefix(text, beginning) {
			return text
		}
	}
	t.Fatalf("the text of %s has no %s", page, beginning)
	return ""
}

// TestInlineCommandsOfTheDocs: each command in the text of a guide is one of a block too, or the
// name of one, or is run by a test, or inlineCommands says why it is not. Decisions, requirements
// and changes speak of commands; TestCommandLinesOfTheDocs sees that these are there.
func TestInlineCommandsOfTheDocs(t *testing.T) {
	t.Parallel()
	pages, blocks := allPages(t), ""
	for _, page := range pages {
		for _, block := range codeBlock.FindAllStringSubmatch(page, -1) {
			blocks += strings.ReplaceAll(block[2], "\\\n", "") + "\n"
		}
	}
	root := rootCommand(cli.Process{Environ: []string{}, Now: time.Now, Stdout: &bytes.Buffer{},
		Stderr: &bytes.Buffer{}})
	found := map[string][]string{}
	for name, page := range pages {
		if regexp.MustCompile("^docs/(decisions|contracts)/|^CHANGELOG").MatchString(name) {
			continue
		}
		for _, text := range spansOf(page) {
			isOperated := slices.Contains(operatedPages, name) && codeSpans.MatchString("`"+text+"`")
			if inlineProgram.MatchString(text) && !checkedNames.MatchString(text) && !isOperated &&
				!isName(root, text) && !strings.Contains(blocks, text) {
				found[text] = append(found[text], name)
			}
		}
	}
	sources := allTestSources(t)
	for text, test := range inlineCommands {
		isRead := func(page string) bool { return sources.problem(test, page) == "" }
		switch {
		case len(found[text]) == 0:
			t.Errorf("no guide has %s, or it stands in a block", text)
		case test == "TestCommandsOfOperating": // which has the commands from the table
		case !strings.HasPrefix(test, "not run: ") && !slices.ContainsFunc(found[text], isRead):
			t.Errorf("%s: %s %s", text, test, sources.problem(test, found[text][0]))
		}
		delete(found, text)
	}
	if len(found) > 0 {
		t.Errorf("no test runs these, and nothing says why: %v", found)
	}
}
