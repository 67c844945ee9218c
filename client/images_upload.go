package client

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Upload hands in a picture. Once it returns nil the picture is stored and its
// job is queued; they survive a crash of the server.
//
// Errors: [ErrInvalid], with Code [ImageUnsupported] or [ImageTooLarge];
// [ErrUnauthorized]. After an error of the server there is no half file.
//
// Repeating under the same idempotency key gives the first file, whatever the
// picture, which this call does by itself after lost answers where Body can be
// read again. When it gives up, the key is in the receipt beside the error.
//
// The request timeout bounds how long an upload may stand still, not how long it
// takes.
func (m *Images) Upload(ctx context.Context, up ImageUpload) (ImageReceipt, error) {
	const op = "images upload"
	up.IdempotencyKey = orDefault(up.IdempotencyKey, rand.Text())
	receipt := ImageReceipt{IdempotencyKey: up.IdempotencyKey}
	header, err := up.header()
	var body *streamedBody
	if err == nil {
		body, err = newStreamedBody(up.Body)
	}
	if err != nil {
		return receipt, invalid(op, "%v", err)
	}
	query := url.Values{}
	if up.Sizes != nil {
		query.Set("sizes", joinInts(up.Sizes))
	}
	got, err := doJSON[ImageReceipt](ctx, m.client,
		call{op: op, method: http.MethodPost, path: imageFiles, query: query.Encode(),
			header: header, stream: body, noRetry: body.seeker == nil,
			accept: []int{http.StatusAccepted}})
	got.IdempotencyKey = up.IdempotencyKey
	return got, err
}

// imageTypes are the types that are taken, by the extensions of file names (G-IP-17).
var imageTypes = map[string]string{".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png",
	".gif": "image/gif", ".webp": "image/webp"}

func (up *ImageUpload) header() (http.Header, error) {
	// What has another extension is refused by the server, whose word it is.
	kind := orDefault(orDefault(up.Type, imageTypes[strings.ToLower(path.Ext(up.Name))]),
		"application/octet-stream")
	header := http.Header{}
	for _, h := range []struct{ what, name, value string }{{"type", "Content-Type", kind},
		{"user id", "X-User-Id", up.UserID},
		{"idempotency key", "Idempotency-Key", up.IdempotencyKey}} {
		if h.value == "" {
			continue
		}
		if err := checkHeader(h.what, h.value); err != nil {
			return nil, err
		}
		header.Set(h.name, h.value)
	}
	return header, nil
}

func joinInts(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ",")
}

// streamedBody is a body that is sent as it is read.
type streamedBody struct {
	io.Reader
	seeker io.Seeker // nil for one that cannot be read again
	start  int64
	size   int64 // -1 where nobody knows
}

func newStreamedBody(r io.Reader) (*streamedBody, error) {
	if r == nil {
		return nil, errors.New("there is no body")
	}
	s := &streamedBody{Reader: r, size: -1}
	seeker, ok := r.(io.Seeker)
	if !ok {
		return s, nil
	}
	start, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil {
		return s, nil // a pipe
	}
	end, err := seeker.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	s.seeker, s.start, s.size = seeker, start, end-start
	return s, nil
}

// bodyReader is one reading of a streamed body, for one try. While it goes on the try
// is alive; once it has ended nothing is read any more, although a transport may
// still want to.
type bodyReader struct {
	body   *streamedBody
	onRead func()
	mu     sync.Mutex
	ended  bool
}

// open returns a reader of the body from its start.
func (s *streamedBody) open(onRead func()) (*bodyReader, error) {
	if s.seeker != nil {
		if _, err := s.seeker.Seek(s.start, io.SeekStart); err != nil {
			return nil, err
		}
	}
	return &bodyReader{body: s, onRead: onRead}, nil
}

func (p *bodyReader) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return 0, io.ErrClosedPipe
	}
	p.onRead()
	return p.body.Read(b)
}

// end waits for a read that is under way, unless that might take for ever.
func (p *bodyReader) end() {
	if p.body.seeker == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

// boundTry bounds one try of a call in time. What is told to be alive has the whole
// time before it again.
func (c *Client) boundTry(ctx context.Context, call call) (bounded context.Context, onRead func(),
	cancel func()) {
	limit := c.requestTimeout + call.wait
	if call.stream == nil {
		bounded, cancel := context.WithTimeout(ctx, limit)
		return bounded, nil, cancel
	}
	bounded, end := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { end(context.DeadlineExceeded) })
	return bounded, func() { timer.Reset(limit) }, func() { timer.Stop(); end(nil) }
}
