// Package sixth proves that a new contract is one folder and one line.
package sixth

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit"
)

// The sixth contract is in testdata/wordcount. It is built into the binary by an overlay: nothing
// in the tree is written.
const (
	module   = "github.com/millrace/millrace"
	folder   = "internal/contract/wordcount"
	listFile = "cmd/millrace/contracts.go"

	importLine = "\t\"" + module + "/" + folder + "\"\n"
	listLine   = "\twordcount.Define,\n"
)

// TestSixthContract proves that a new contract is one folder and one line (with its import): the
// binary then serves it, executes its jobs, and knows its settings, metrics and document.
func TestSixthContract(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the binary")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	binary := filepath.Join(dir, "millrace")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w",
		"-overlay", writeOverlay(t, dir), "-o", binary, "./cmd/millrace")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Run("settings", func(t *testing.T) { checkSixthSettings(t, binary) })
	t.Run("serves", func(t *testing.T) { checkSixthServes(t, binary) })
}

// writeOverlay writes what go build is to see in place of the tree: the folder of the sixth
// contract, and the list of contracts with its line.
func writeOverlay(t *testing.T, dir string) (path string) {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	files, err := os.ReadDir("testdata/wordcount")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		replace[filepath.Join(root, folder, f.Name())] = filepath.Join(root,
			"internal/arch/sixth/testdata/wordcount", f.Name())
	}
	list, err := os.ReadFile(filepath.Join(root, listFile))
	if err != nil {
		t.Fatal(err)
	}
	text := string(list)
	for line, after := range map[string]string{
		importLine: "\t\"" + module + "/internal/contract/taskflow\"\n",
		listLine:   "\trelay.Define,\n",
	} {
		if strings.Count(text, after) != 1 {
			t.Fatalf("%s has not one line %q", listFile, after)
		}
		text = strings.Replace(text, after, after+line, 1)
	}
	changed := filepath.Join(dir, "contracts.go")
	if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	replace[filepath.Join(root, listFile)] = changed
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkSixthSettings checks that the configuration knows the settings of the contract.
func checkSixthSettings(t *testing.T, binary string) {
	for _, tt := range []struct {
		name string
		set  []string
		env  string
		want string
	}{
		{"default", nil, "", "wordcount.max_text 1KiB default"},
		{"environment", nil, "MILLRACE__WORDCOUNT__WORKERS=3",
			"wordcount.workers 3 environment MILLRACE__WORDCOUNT__WORKERS"},
		{"among the contracts", nil, "",
			"contracts forgerun,images,taskflow,fetchbox,relay,wordcount default"},
		{"the common token", []string{"token=hush"}, "", "wordcount.token *** token, flag --set token"},
		{"a wrong value", []string{"wordcount.workers=0"}, "",
			`wrong value for "wordcount.workers" (flag --set wordcount.workers): "0"; ` +
				`expected a whole number from 1 to 100`},
		{"a misspelled key", []string{"wordcount.worker=1"}, "", `did you mean "wordcount.workers"?`},
		{"a misspelled variable", nil, "MILLRACE_WORDCOUNT_LEASE=1m",
			"did you mean MILLRACE__WORDCOUNT__LEASE?"},
		{"beyond loopback", []string{"contracts=wordcount", "listen=:1"}, "",
			"set token or wordcount.token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"config", "--config", os.DevNull}
			for _, pair := range tt.set {
				args = append(args, "--set", pair)
			}
			c := exec.CommandContext(t.Context(), binary, args...)
			c.Dir, c.Env = t.TempDir(), []string{tt.env}
			out, _ := c.CombinedOutput() // a wrong setting is an error
			if got := strings.Join(strings.Fields(string(out)), " "); !strings.Contains(got,
				tt.want) {
				t.Errorf("got %s\nwant %s", out, tt.want)
			}
		})
	}
}

// checkSixthServes starts a node, submits a job and waits until its worker has executed it.
func checkSixthServes(t *testing.T, binary string) {
	c := exec.CommandContext(t.Context(), binary, "serve", "--until-stdin-ends", "--config",
		os.DevNull, "--set", "listen=127.0.0.1:0", "--set", "data_dir="+t.TempDir())
	c.Env = []string{"MILLRACE__WORDCOUNT__MAX_TEXT=16B"}
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c.Stderr = &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		if err := c.Wait(); err != nil {
			t.Errorf("the node ended with %v: %s", err, log.String())
		}
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	_, url, found := strings.Cut(line, "http://")
	if err != nil || !found {
		t.Fatalf("%q, %v: %s", line, err, log.String())
	}
	url = "http://" + strings.TrimSpace(url)

	status, made := request(t, "POST", url+"/wordcount/v1/texts", "three words here")
	var text struct {
		ID, State string
		Words     int
	}
	if err := json.Unmarshal([]byte(made), &text); err != nil || status != 201 || text.ID == "" {
		t.Fatalf("POST: %d %s, %v", status, made, err)
	}
	testkit.WaitUntil(t, "the text to be counted", func() bool {
		_, body := request(t, "GET", url+"/wordcount/v1/texts/"+text.ID, "")
		return json.Unmarshal([]byte(body), &text) == nil && text.State == "counted"
	})
	if text.Words != 3 {
		t.Errorf("got %d words", text.Words)
	}
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/wordcount/v1/texts", "", 400, `{"error":"the text is empty"}`},
		{"POST", "/wordcount/v1/texts", strings.Repeat("x", 17), 413, "error"}, // the setting counts
		{"GET", "/wordcount/v1/texts/none", "", 404, "error"},
		{"GET", "/openapi/wordcount.yaml", "", 200, "title: WordCount"},
		{"GET", "/metrics", "", 200, "wordcount_texts_total"},
		{"GET", "/metrics", "", 200, "wordcount_queue_jobs"},
		{"POST", "/worker/v1/claims", `{"contract":"wordcount","max":1}`, 409, "wordcount"},
	} {
		status, body := request(t, tt.method, url+tt.path, tt.body)
		if status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s %s: %d %.300s", tt.method, tt.path, status, body)
		}
	}
	work := exec.CommandContext(t.Context(), binary, "work", "--contract", "wordcount", "--server", url,
		"texts", "--", "cat")
	out, err := work.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("the server refuses the poll: 409")) {
		t.Errorf("work: %v: %s", err, out)
	}
}

func request(t *testing.T, method, url, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(body, "{") {
		r.Header.Set("Content-Type", "application/json")
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(text)
}
