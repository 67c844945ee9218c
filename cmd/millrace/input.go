package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// inputPause is how long input that is still open may bring nothing more before what it has
// brought is used.
const inputPause = 100 * time.Millisecond

// readDocument reads a JSON document from a file, or from standard input for -. On standard
// input the document may end before the input does, which is open for as long as somebody may
// still write to it.
func readDocument(ctx context.Context, p cli.Process, name string) ([]byte, error) {
	if name != "-" {
		return os.ReadFile(name)
	}
	chunks := make(chan []byte)
	failure := make(chan error, 1)
	go func() {
		for {
			chunk := make([]byte, 64<<10)
			n, err := p.Stdin.Read(chunk)
			select {
			case chunks <- chunk[:n]:
			case <-ctx.Done():
				return
			}
			if err != nil {
				failure <- err
				return
			}
		}
	}()
	var text []byte
	pause := time.NewTimer(inputPause)
	defer pause.Stop()
	for {
		select {
		case chunk := <-chunks:
			text = append(text, chunk...)
			pause.Reset(inputPause)
		case err := <-failure:
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return text, err
		case <-pause.C:
			if json.Valid(text) {
				return text, nil
			}
		case <-ctx.Done():
			return nil, cli.ErrInterrupted
		}
	}
}

// lineInput is input that is read line by line, by a goroutine of its own: a read cannot be
// interrupted.
type lineInput struct {
	lines chan []byte // closed at the end of the input
	err   error       // why it ended; read it after that
}

// scanLines begins to read; it ends with the input, or with the first line that nobody takes
// before the context ends.
func scanLines(ctx context.Context, in io.Reader) *lineInput {
	l := &lineInput{lines: make(chan []byte)}
	go func() {
		defer close(l.lines)
		s := bufio.NewScanner(in)
		s.Buffer(make([]byte, 64<<10), maxLine)
		for s.Scan() {
			select {
			case l.lines <- bytes.Clone(s.Bytes()):
			case <-ctx.Done():
				l.err = ctx.Err()
				return
			}
		}
		l.err = s.Err()
	}()
	return l
}
