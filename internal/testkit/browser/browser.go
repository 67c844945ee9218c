// Package browser drives a headless Chromium in tests of pages.
//
// The browser is the one of the system. A test is skipped where there is none; with
// MILLRACE_TEST_REQUIRE=1 it fails.
package browser

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/millrace/millrace/internal/testkit"
)

// timeout bounds one step, so that a page that never comes fails its test with what was awaited.
const timeout = time.Minute

// Tab is a tab of a browser of its own, with the cookies of nobody.
type Tab struct {
	ctx    context.Context
	origin string

	mu       sync.Mutex
	problems []string // errors of scripts, and what policies have refused
	foreign  []string // addresses of other origins that were asked for
	requests []string // the addresses of all requests, but the origin
}

// Open starts a browser for the pages of an origin, such as http://127.0.0.1:8080. It ends with the
// test.
func Open(tb testing.TB, origin string) *Tab {
	tb.Helper()
	program := find(tb)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
		chromedp.UserDataDir(tb.TempDir()), chromedp.Flag("disable-gpu", true))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	tb.Cleanup(end)
	ctx, closeTab := chromedp.NewContext(allocator)
	tb.Cleanup(closeTab)
	t := &Tab{ctx: ctx, origin: origin}
	// The first action starts the browser, which lives as long as the context of that action.
	if err := chromedp.Do(ctx, command(log.Enable, cdp.Empty{}),
		command(network.Enable, network.EnableParams{}),
		command(runtime.Enable, cdp.Empty{})); err != nil {
		tb.Fatalf("cannot start the browser: %v", err)
	}
	t.View(tb, 1280, false)
	follow(t, network.RequestWillBeSent, t.noteRequest)
	follow(t, runtime.ExceptionThrown, func(e runtime.EventExceptionThrown) {
		text := e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			text += " " + thrown.Description
		}
		t.addProblem(text)
	})
	follow(t, log.EntryAdded, func(e log.EventEntryAdded) {
		isError := e.Entry.Level == log.EntryLevelError
		if isError && e.Entry.Source != log.EntrySourceNetwork {
			t.addProblem(e.Entry.Text)
		}
	})
	return t
}

// command makes an action of a command of the protocol.
func command[P any](c cdp.Command[P, cdp.Empty], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// follow calls note with each event of a kind.
func follow[E any](t *Tab, kind cdp.Event[E], note func(E)) {
	events := chromedp.Events(t.ctx, kind)
	go func() {
		for e, err := range events {
			if err != nil {
				return
			}
			note(e)
		}
	}()
}

// find returns the path of the browser: the one without windows where it is there, as it takes half
// of the processor time.
func find(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser",
		"google-chrome"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		return path
	}
	if os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
		tb.Fatal("Chromium is not installed")
	}
	tb.Skip("skipped: Chromium is not installed")
	return ""
}

// noteRequest remembers what was asked of another origin.
func (t *Tab) noteRequest(e network.EventRequestWillBeSent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	path, isOwn := strings.CutPrefix(e.Request.URL, t.origin)
	if isOwn && strings.HasPrefix(path, "/") {
		t.requests = append(t.requests, path)
	} else if !strings.HasPrefix(e.Request.URL, "about:") {
		t.foreign = append(t.foreign, e.Request.URL)
	}
}

// Requests returns how many requests there were for addresses of the origin that begin with prefix.
func (t *Tab) Requests(prefix string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, path := range t.requests {
		if strings.HasPrefix(path, prefix) {
			n++
		}
	}
	return n
}

// addProblem records an error of a script, or what a policy has refused.
func (t *Tab) addProblem(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems = append(t.problems, text)
}

// Check fails the test if a page has asked another origin for something, thrown an error or done
// what its policy refuses.
func (t *Tab) Check(tb testing.TB) {
	tb.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, url := range t.foreign {
		tb.Errorf("a page asked for %s", url)
	}
	for _, text := range t.problems {
		tb.Errorf("a page has a problem: %s", text)
	}
}

// run carries out an action. what completes the message of a failure: cannot what.
func run[T any](tb testing.TB, t *Tab, what string, action chromedp.Action[T]) T {
	tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		tb.Fatalf("cannot %s: %v", what, err)
	}
	return value
}

// Go opens a path of the origin.
func (t *Tab) Go(tb testing.TB, path string) {
	tb.Helper()
	run(tb, t, "open "+path, chromedp.Navigate(t.origin+path))
}

// Text returns the text that is seen of the first element that a selector finds.
func (t *Tab) Text(tb testing.TB, selector string) string {
	tb.Helper()
	return run(tb, t, "read "+selector, chromedp.Text(chromedp.CSS(selector)))
}

// Click clicks on what a selector finds.
func (t *Tab) Click(tb testing.TB, selector string) {
	tb.Helper()
	run(tb, t, "click on "+selector, chromedp.Click(chromedp.CSS(selector)))
}

// Follow clicks on what a selector finds and waits for the page after it.
func (t *Tab) Follow(tb testing.TB, selector string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	answer, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(selector)))
	if err != nil {
		tb.Fatalf("cannot follow %s: %v", selector, err)
	}
	if answer.Status >= 500 {
		tb.Fatalf("%s leads to %d", selector, answer.Status)
	}
}

// Type writes a text into a field.
func (t *Tab) Type(tb testing.TB, selector, text string) {
	tb.Helper()
	run(tb, t, "type into "+selector, chromedp.SendKeys(chromedp.CSS(selector), text))
}

// Press presses keys, wherever the focus is.
func (t *Tab) Press(tb testing.TB, keys string) {
	tb.Helper()
	run(tb, t, "press "+keys, chromedp.KeyEvent(keys))
}

// Eval evaluates an expression of JavaScript and returns its value.
func Eval[T any](tb testing.TB, t *Tab, expression string) T {
	tb.Helper()
	return run(tb, t, "evaluate "+expression, chromedp.Evaluate[T](expression))
}

// WaitFor waits until an expression of JavaScript is true. It cannot be evaluated while the page
// goes over to another one, and is not true then.
func (t *Tab) WaitFor(tb testing.TB, expression string) {
	tb.Helper()
	testkit.WaitUntil(tb, expression, func() bool {
		ctx, cancel := context.WithTimeout(t.ctx, timeout)
		defer cancel()
		isTrue, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
		if err != nil {
			return false
		}
		return isTrue
	})
}

// View sets how pages are seen: their width in pixels, and whether colours are dark. Nothing moves:
// colours are at once what they will be.
func (t *Tab) View(tb testing.TB, width int64, dark bool) {
	tb.Helper()
	scheme := map[bool]string{true: "dark", false: "light"}[dark]
	run(tb, t, "set the size", command(emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1}))
	run(tb, t, "set the colours", command(emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"}}}))
}

// Point moves the pointer to a place of the window.
func (t *Tab) Point(tb testing.TB, x, y float64) {
	tb.Helper()
	run(tb, t, "move the pointer", chromedp.MouseEvent(
		input.DispatchMouseEventTypeMouseMoved, x, y))
}

// LoadAxe loads axe-core, whose text is given, into the page.
func (t *Tab) LoadAxe(tb testing.TB, axe string) {
	tb.Helper()
	run(tb, t, "load axe-core", chromedp.Evaluate[bool](axe+"\n;true"))
}

// Violations returns what axe-core, which was loaded, finds on the page that is a serious or a
// critical obstacle for people: by these rules, or by all of them where none is named.
func (t *Tab) Violations(tb testing.TB, rules ...string) []string {
	tb.Helper()
	only := ""
	if len(rules) > 0 {
		only = `, runOnly: ["` + strings.Join(rules, `", "`) + `"]`
	}
	return run(tb, t, "run axe-core", chromedp.Evaluate[[]string](
		`axe.run({ resultTypes: ["violations"]`+only+` }).then(found => found.violations
			.filter(v => v.impact === "serious" || v.impact === "critical")
			.map(v => v.id + ": " + v.help + ": " + v.nodes.slice(0, 4).map(
				node => node.html.slice(0, 200) + " " + (node.any[0] || {}).message).join(" | ")))`,
		chromedp.EvalAwaitPromise))
}

// WithoutScripts switches JavaScript off.
func (t *Tab) WithoutScripts(tb testing.TB) {
	tb.Helper()
	run(tb, t, "switch scripts off", command(emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true}))
}

// Screenshot writes a picture of the whole page to the directory of MILLRACE_TEST_SCREENSHOTS, if
// that is set.
func (t *Tab) Screenshot(tb testing.TB, name string) {
	tb.Helper()
	t.picture(tb, name, chromedp.FullScreenshot(100))
}

// ScreenshotWindow is Screenshot of what the window shows.
func (t *Tab) ScreenshotWindow(tb testing.TB, name string) {
	tb.Helper()
	t.picture(tb, name, chromedp.CaptureScreenshot())
}

// picture takes a picture and writes it.
func (t *Tab) picture(tb testing.TB, name string, take chromedp.Action[[]byte]) {
	tb.Helper()
	dir := os.Getenv("MILLRACE_TEST_SCREENSHOTS")
	if dir == "" {
		return
	}
	picture := run(tb, t, "take a picture of "+name, take)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o666); err != nil {
		tb.Fatal(err)
	}
}
