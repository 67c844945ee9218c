package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptPictures is `pictures`: it writes three files like the pictures of the demo, under the same
// names.
func scriptPictures(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: pictures")
	}
	sunset := image.NewRGBA(image.Rect(0, 0, 1600, 1000))
	badge := image.NewRGBA(image.Rect(0, 0, 500, 300))
	for x := range 1600 {
		for y := range 1000 {
			sunset.SetRGBA(x, y, color.RGBA{uint8(x), uint8(y), uint8(x + y), 255})
		}
	}
	draw.Draw(badge, image.Rect(100, 100, 400, 200), image.White, image.Point{}, draw.Src)
	var photo, logo bytes.Buffer
	ts.Check(jpeg.Encode(&photo, sunset, nil))
	ts.Check(png.Encode(&logo, badge))
	for name, data := range map[string][]byte{"sunset.jpg": photo.Bytes(),
		"badge.png":  logo.Bytes(),
		"broken.jpg": []byte("this is no picture at all\n")} {
		ts.Check(os.WriteFile(ts.MkAbs(name), data, 0o600))
	}
}

// builtBinary is the program as it is shipped. Tests run themselves in its place, but no test can
// be the child that processes a picture: the limits of that would count the memory of the race
// detector.
var builtBinary = sync.OnceValues(func() (path string, err error) {
	if builtDir, err = os.MkdirTemp("", "millrace-built-"); err != nil {
		return "", err
	}
	path = filepath.Join(builtDir, "millrace")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// mustBuild gives the path of builtBinary.
func mustBuild(t *testing.T) string {
	t.Helper()
	path, err := builtBinary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var builtDir string

// cleaningM runs the tests and then removes the program that they have built.
type cleaningM struct{ testscript.TestingM }

func (l cleaningM) Run() int {
	// as under nohup: the programs that tests start would ignore it too
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	code := l.TestingM.Run()
	_ = os.RemoveAll(builtDir) // nothing where no test needed it
	return code
}

// scriptBuilt is `built`: from then on millrace is the program as it is shipped.
func scriptBuilt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: built")
	}
	path, err := builtBinary()
	ts.Check(err)
	ts.Setenv("BUILT", path)
	ts.Setenv("PATH", filepath.Dir(path)+string(os.PathListSeparator)+ts.Getenv("PATH"))
}

// programOf finds a program that a script names.
func programOf(ts *testscript.TestScript, name string) (string, error) {
	if built := ts.Getenv("BUILT"); built != "" && name == "millrace" {
		return built, nil
	}
	return exec.LookPath(name)
}

// scriptOrigin is `origin`: it starts a server of downloads and sets $ORIGIN to its URL. /slow is
// answered when the script ends, /once fails the first time, paths that end in /gone always.
func scriptOrigin(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: origin")
	}
	var failed atomic.Bool
	held := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/gone"):
			http.NotFound(w, r)
		case path == "/once" && failed.CompareAndSwap(false, true):
			w.WriteHeader(http.StatusServiceUnavailable)
		case path == "/slow":
			<-held
		default:
			_, _ = io.WriteString(w, "this is "+path)
		}
	}))
	ts.Defer(func() { close(held); s.Close() })
	ts.Setenv("ORIGIN", s.URL)
}
