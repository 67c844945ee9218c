package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// imagesLoad is the load on Images: uploads of pictures under idempotency keys, more variants of
// some, and deletions. The server makes the variants, so there are no workers.
type imagesLoad struct {
	*run
	made atomic.Int64

	mu    sync.Mutex
	files []string
}

// images names the contract, and in the ledger the queue of its files.
const images = "images"

// pictureSizes are the variants of every picture, by loadSettings; moreSize is one that a job of
// its own makes. Pictures are larger than these.
var pictureSizes = []int{16, 48}

const (
	moreSize     = 32
	smallestEdge = 50
)

// uploaded is what the ledger keeps of a picture, as the payload of its file.
type uploaded struct {
	Of     string `json:"of"`
	Digest string `json:"digest"`
	Broken bool   `json:"broken"`
}

// readUploaded reads it.
func readUploaded(payload string) (u uploaded, ok bool) {
	if json.Unmarshal([]byte(payload), &u) != nil {
		return u, false
	}
	return u, u.Digest != ""
}

// load starts the actor. It goes on until load ends.
func (l *imagesLoad) load(load context.Context) {
	a := l.newActor("images-client")
	l.producersRunning.Go(func() {
		for a.pause(load, 600*time.Millisecond) {
			l.act(load, a)
		}
	})
}

// act does the action that is drawn.
func (l *imagesLoad) act(load context.Context, a *actor) {
	file := l.draw(a)
	switch draw := a.random.IntN(10); {
	case draw < 7 || file == "":
		l.upload(load, a)
	case draw < 9:
		body := encode(map[string]any{"type": "process_file", "file_id": file,
			"sizes": []int{moreSize}})
		a.send(context.Background(), &op{Contract: images, Verb: "process", Job: file},
			request{method: http.MethodPost, path: "/images/v1/jobs", body: body,
				read: readReceipt("job_id")})
	default:
		a.send(context.Background(), &op{Contract: images, Verb: "delete", Job: file},
			request{method: http.MethodDelete, path: "/images/v1/files/" + file,
				read: readReceipt("job_id")})
	}
}

// draw returns a file that was acknowledged, "" while there is none.
func (l *imagesLoad) draw(a *actor) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.files) == 0 {
		return ""
	}
	return l.files[a.random.IntN(len(l.files))]
}

// upload sends a picture under a key until its outcome is known, and some once more.
func (l *imagesLoad) upload(load context.Context, a *actor) {
	name := fmt.Sprint("p", l.made.Add(1))
	picture, kind := drawPicture(a)
	u := uploaded{Of: name, Digest: digestOf(picture)}
	if a.random.IntN(8) == 0 {
		picture = picture[:len(picture)/2]
		u.Digest, u.Broken = digestOf(picture), true
	}
	m := made{Name: name, Queue: images, Payload: string(encode(u))}
	send := func() *op {
		o := &op{Contract: images, Verb: "submit", Key: name, Made: []made{m}}
		a.send(context.Background(), o, request{method: http.MethodPost, path: "/images/v1/files",
			body: picture, header: map[string]string{"Idempotency-Key": name,
				"Content-Type": "image/" + kind}, read: readReceipt("file_id")})
		return o
	}
	o := a.repeat(load, send)
	if o.Class != classOK {
		return
	}
	l.mu.Lock()
	l.files = append(l.files, o.Made[0].Job)
	l.mu.Unlock()
	if a.random.IntN(10) == 0 {
		send()
	}
}

// drawPicture makes a picture of random pixels, which no other one is equal to.
func drawPicture(a *actor) (encoded []byte, kind string) {
	size := image.Rect(0, 0, smallestEdge+a.random.IntN(80), smallestEdge+a.random.IntN(80))
	p := image.NewRGBA(size)
	for y := range size.Dy() {
		for x := range size.Dx() {
			n := a.random.Uint32()
			p.SetRGBA(x, y, color.RGBA{uint8(n), uint8(n >> 8), uint8(n >> 16), 255})
		}
	}
	var b bytes.Buffer
	if a.random.IntN(2) == 0 {
		_ = jpeg.Encode(&b, p, nil) // a buffer takes everything
		return b.Bytes(), "jpeg"
	}
	_ = png.Encode(&b, p)
	return b.Bytes(), "png"
}
