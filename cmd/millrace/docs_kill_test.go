package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/child"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// What the section "Kill it" of docs/start.md promises holds for the programs of the page, with the
// lines that it tells to insert. Their times are shorter.
func TestKillItOfTheDocs(t *testing.T) {
	t.Parallel()
	page := documents(t)["docs/start.md"]
	for _, language := range []string{"Go", "Python", "TypeScript"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			r := newReader(t)
			if language == "TypeScript" {
				outside.InstallClient(t, filepath.Join(r.root, "clients", "typescript"), r.app)
			}
			one := tabbed{"Kill it", language, slowMail(t, page, language)}
			r.killServer(one)
			r.killWorker(one)
		})
	}
}

const handlerBegan = "the handler has begun"

// slowMail is the program for Relay in a language, whose handler says that it has begun and waits,
// as the page tells.
func slowMail(t *testing.T, page, language string) string {
	t.Helper()
	code := ""
	for _, one := range tabsOf(page) {
		if (one.language == language) && (one.section == firstJob) {
			code = one.code
		}
	}
	replace := func(old, replacement string) {
		if !strings.Contains(code, old) {
			t.Fatalf("the program for %s has no %q", language, old)
		}
		code = strings.Replace(code, old, replacement, 1)
	}
	inserted := func(line, shorter string) string {
		if !strings.Contains(page, "`"+line+"`") {
			t.Fatalf("the page does not tell to insert %s", line)
		}
		return shorter
	}
	switch language {
	case "Go":
		wait := inserted("time.Sleep(20 * time.Second)", "time.Sleep(2 * time.Second)")
		replace(`fmt.Println("sent to"`, fmt.Sprintf("fmt.Println(%q)\n%s\n", handlerBegan, wait)+
			`fmt.Println("sent to"`)
		replace("Timeout: 30 *", "Timeout: 4 *")
	case "Python":
		wait := inserted("time.sleep(20)", "time.sleep(2)")
		replace("import millrace", inserted("import time", "import time")+"\nimport millrace")
		replace(`    print("sent to"`, fmt.Sprintf("    print(%q, flush=True)\n    %s\n", handlerBegan,
			wait)+`    print("sent to"`)
		replace("timeout=30", "timeout=4")
	case "TypeScript":
		wait := inserted("await new Promise((done) => setTimeout(done, 20_000))",
			"await new Promise((done) => setTimeout(done, 2_000))")
		replace(`handler: (run) => console.log("sent to", run.job.payload.to),`,
			fmt.Sprintf("handler: async (run) => { console.log(%q); %s; ", handlerBegan, wait)+
				`console.log("sent to", run.job.payload.to); },`)
		replace("timeout: 30", "timeout: 4")
	}
	return code
}

// killServer kills the server while the handler runs, and starts it again in its folder: the worker
// goes on, and its end counts.
func (r *reader) killServer(one tabbed) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), testTimeout)
	defer cancel()
	c, output := r.start(ctx, one, handlerBegan)
	r.await(ctx, output)
	r.server.kill()
	r.server = launchIn(r.T, filepath.Join(r.app, "millrace-data"), "--set", "log.level=warn",
		"--set", "listen="+strings.TrimPrefix(r.server.url, "http://"))
	awaitReady(r.T, r.server.url)
	pollUntil(r.Fatalf, "the handler to print", func() bool {
		return strings.Contains(output.String(), "sent to ada")
	})
	r.interrupt(c, one.language, output)
}

// killWorker kills the worker while the handler runs, and starts it again: it gets the job once
// more, when its timeout has passed.
func (r *reader) killWorker(one tabbed) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), testTimeout)
	defer cancel()
	c, output := r.start(ctx, one, handlerBegan)
	r.await(ctx, output)
	if err := child.SignalGroup(c.Process, os.Kill); err != nil {
		r.Fatal(err)
	}
	_ = c.Wait() // it was killed
	if strings.Contains(output.String(), "sent to") {
		r.Fatalf("%s has printed before it was killed", one.language)
	}
	c, output = r.start(ctx, one, "sent to ada")
	r.await(ctx, output)
	r.interrupt(c, one.language, output)
}

// await waits until a program has printed what it is watched for.
func (r *reader) await(ctx context.Context, output *watchedOutput) {
	r.Helper()
	select {
	case <-output.seen:
	case <-ctx.Done():
		r.Fatalf("%q was not printed:\n%s", output.want, output)
	}
}

// interrupt ends a worker as by Ctrl-C, and demands that it has printed once and left no job.
func (r *reader) interrupt(c *exec.Cmd, language string, output *watchedOutput) {
	r.Helper()
	if err := child.SignalGroup(c.Process, os.Interrupt); err != nil {
		r.Fatal(err)
	}
	_ = c.Wait() // Python ends by the signal
	if n := strings.Count(output.String(), "sent to ada"); n != 1 {
		r.Errorf("%s has printed %d times:\n%s", language, n, output)
	}
	status, text := sendRequest(r.T, "GET", r.server.url+"/v2/queues/mail/jobs", "")
	if status != http.StatusNoContent {
		r.Errorf("%s: a job is left: %d %s", language, status, text)
	}
}
