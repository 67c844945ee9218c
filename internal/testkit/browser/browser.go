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

	mu      sync.Mutex
	wrongs  []string // what scripts and policies complained about
	foreign []string // addresses of other origins that were asked for
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
		t.complain(e.ExceptionDetails.Text)
	})
	follow(t, log.EntryAdded, func(e log.EventEntryAdded) {
		isError := e.Entry.Level == log.EntryLevelError
		if isError && e.Entry.Source != log.EntrySourceNetwork {
			t.complain(e.Entry.Text)
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

// find returns the path of the browser.
func find(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
		tb.Fatal("Chromium is not installed")
	}
	tb.Skip("skipped: Chromium is not installed")
	return ""
}

// noteRequest remembers what was asked of another origin.
func (t *Tab) noteRequest(e network.EventRequestWillBeSent) {
	if strings.HasPrefix(e.Request.URL, t.origin+"/") || strings.HasPrefix(e.Request.URL, "about:") {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.foreign = append(t.foreign, e.Request.URL)
}

// complain remembers an error of a script, or what a policy has refused.
func (t *Tab) complain(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrongs = append(t.wrongs, text)
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
	for _, text := range t.wrongs {
		tb.Errorf("a page complained: %s", text)
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

// WaitFor waits until an expression of JavaScript is true.
func (t *Tab) WaitFor(tb testing.TB, expression string) {
	tb.Helper()
	testkit.WaitUntil(tb, expression, func() bool { return Eval[bool](tb, t, expression) })
}

// View sets how pages are seen: their width in pixels, and whether colours are dark.
func (t *Tab) View(tb testing.TB, width int64, dark bool) {
	tb.Helper()
	scheme := map[bool]string{true: "dark", false: "light"}[dark]
	run(tb, t, "set the size", command(emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1}))
	run(tb, t, "set the colours", command(emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}}}))
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
	dir := os.Getenv("MILLRACE_TEST_SCREENSHOTS")
	if dir == "" {
		return
	}
	picture := run(tb, t, "take a picture of "+name, chromedp.FullScreenshot(100))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o666); err != nil {
		tb.Fatal(err)
	}
}
