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

// Upload uploads a picture. When it returns nil the picture is stored and its job is queued; both
// survive a crash of the server. The request timeout limits how long an upload may make no
// progress, not how long it takes.
//
// Errors: [ErrInvalid], with Code [ImageCodeUnsupportedImageType] or [ImageCodeUploadTooLarge];
// [ErrUnauthorized]. After an error of the server no part of the file is stored.
//
// Repeating under the same idempotency key returns the first file, whatever the picture is. Upload
// does that itself after lost answers if Body can be read again: it asks Body whether it is an
// [io.Seeker] that can seek, such as a file or a [bytes.Reader], so that a stream needs no other
// method than Read. From one that is not, Upload reads once and makes one try, with a body of
// unknown length. When it gives up, the receipt beside the error has the key.
func (m *Images) Upload(ctx context.Context, up ImageUpload) (ImageReceipt, error) {
	const op = "images upload"
	up.IdempotencyKey = orDefault(up.IdempotencyKey, rand.Text())
	receipt := ImageReceipt{IdempotencyKey: up.IdempotencyKey}
	header, err := up.header()
	if err != nil {
		return receipt, invalid(op, "%v", err)
	}
	body, err := newStreamedBody(up.Body)
	if err != nil {
		return receipt, invalid(op, "%v", err)
	}
	query := url.Values{}
	if up.Sizes != nil {
		query.Set("sizes", joinInts(up.Sizes))
	}
	if up.CallbackURL != "" {
		query.Set("callback_url", up.CallbackURL)
	}
	got, err := doJSON[ImageReceipt](ctx, m.client, call{
		op:        op,
		method:    http.MethodPost,
		path:      imageFilesPath,
		query:     query.Encode(),
		header:    header,
		stream:    body,
		singleTry: body.seeker == nil,
		accept:    []int{http.StatusAccepted},
	})
	got.IdempotencyKey = up.IdempotencyKey
	return got, err
}

// imageTypes are the supported media types by the extension of a file name (G-IP-17).
var imageTypes = map[string]string{
	".jpg":  "image/jpeg",
	".jpeg": "image/jpeg",
	".png":  "image/png",
	".gif":  "image/gif",
	".webp": "image/webp",
}

func (up *ImageUpload) header() (http.Header, error) {
	// Any other type is sent as it is: the server refuses it with its own message.
	mediaType := orDefault(up.Type, imageTypes[strings.ToLower(path.Ext(up.Name))])
	header := http.Header{}
	for _, h := range []struct{ what, name, value string }{
		{"type", "Content-Type", orDefault(mediaType, "application/octet-stream")},
		{"user id", "X-User-Id", up.UserID},
		{"idempotency key", "Idempotency-Key", up.IdempotencyKey},
	} {
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

// streamedBody is a request body that is read from its source while it is sent. Each try reads it
// from the start through a bodyReader of its own, if its source can seek.
type streamedBody struct {
	io.Reader
	seeker io.Seeker // nil for a source that cannot be read again
	start  int64     // the position of the source before the first try
	size   int64     // -1 if unknown
}

// newStreamedBody measures a source by seeking, if it can seek.
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
		return s, nil // a pipe: *os.File has Seek, but it fails
	}
	end, err := seeker.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	s.seeker, s.start, s.size = seeker, start, end-start
	return s, nil
}

// bodyReader reads a streamed body for one try. Every read calls onRead, which shows that the try
// makes progress. After end it reads nothing more, although the transport may still call it: the
// next try reads from the same source.
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

// end stops the reader and waits for a read in progress. It does neither for a source that cannot
// be read again: there is no next try, and the read might never return.
func (p *bodyReader) end() {
	if p.body.seeker == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

// withTryTimeout returns a context that limits one try of a call. A streamed call may take longer
// than the request timeout as long as each part takes less: onRead, which is nil for other calls,
// starts the timeout again.
func (c *Client) withTryTimeout(ctx context.Context,
	call call) (tryCtx context.Context, onRead func(), cancel func()) {
	limit := c.requestTimeout + call.wait
	if call.stream == nil {
		tryCtx, cancel := context.WithTimeout(ctx, limit)
		return tryCtx, nil, cancel
	}
	tryCtx, end := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { end(context.DeadlineExceeded) })
	return tryCtx, func() { timer.Reset(limit) }, func() { timer.Stop(); end(nil) }
}
