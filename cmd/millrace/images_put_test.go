package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"image/png"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptPictures is `pictures`: those of the demo, by their names.
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

// cleaningM are the tests, after which the program they have built is removed.
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

// programOf finds a program for a script.
func programOf(ts *testscript.TestScript, name string) (string, error) {
	if built := ts.Getenv("BUILT"); built != "" && name == "millrace" {
		return built, nil
	}
	return exec.LookPath(name)
}
