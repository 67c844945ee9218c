package main

import (
	"bytes"
	"database/sql"
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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/millrace/millrace/client"
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

// scriptOrigin is `origin`: it starts a server of downloads and sets $ORIGIN to its URL. /slow is
// answered when the script ends, /once fails the first time, paths that end in /gone always. The
// path and body of each POST become a line of the file posted.
func scriptOrigin(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: origin")
	}
	var failed atomic.Bool
	release := make(chan struct{})
	posted, err := os.Create(ts.MkAbs("posted"))
	ts.Check(err)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			lastPosts.Store(ts, post{r.Header, body})
			_, _ = fmt.Fprintf(posted, "%s %s\n", r.URL.Path, body)
		}
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/gone"):
			http.NotFound(w, r)
		case path == "/once" && failed.CompareAndSwap(false, true):
			w.WriteHeader(http.StatusServiceUnavailable)
		case path == "/slow":
			<-release
		default:
			_, _ = io.WriteString(w, "this is "+path)
		}
	}))
	ts.Defer(func() { close(release); s.Close(); posted.Close() })
	ts.Setenv("ORIGIN", s.URL)
}

// post is a request to the origin of a script.
type post struct {
	header http.Header
	body   []byte
}

// lastPosts are the last POSTs of all scripts, which run side by side.
var lastPosts sync.Map // *testscript.TestScript to post

// scriptSigned is `signed FILE`: the last POST to the origin is signed with the secret that the
// file holds, and with `!` it is not.
func scriptSigned(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: signed file")
	}
	last, isThere := lastPosts.Load(ts)
	if !isThere {
		ts.Fatalf("nothing was posted")
	}
	p := last.(post)
	secret := strings.TrimSpace(ts.ReadFile(args[0]))
	_, err := client.VerifyWebhook([]string{secret}, p.header, p.body, time.Now())
	if neg != (err != nil) {
		ts.Fatalf("signed with %s: %v", secret, err)
	}
}

// scriptSQL is `sql NAME STATEMENT`: the statement on the database $STORE, of which $NAME becomes
// the first column of the only row.
func scriptSQL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sql name statement")
	}
	db, err := sql.Open("pgx", ts.Getenv("STORE"))
	ts.Check(err)
	defer db.Close()
	var value string
	ts.Check(db.QueryRow(args[1]).Scan(&value))
	ts.Setenv(args[0], value)
}
