package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// InputPause is how long input that stays open may bring nothing more before what it has brought is
// used.
const InputPause = 100 * time.Millisecond

// ReadDocument reads a JSON document from the named file, or from standard input for "-".
//
// Standard input stays open as long as a process may still write to it. ReadDocument therefore
// returns when what it has read is valid JSON and nothing more has come for InputPause, or at the
// end of the input. It does not check what a file holds, nor what it has read by the end of the
// input. When ctx ends first, it returns ErrInterrupted.
func ReadDocument(ctx context.Context, p Process, name string) ([]byte, error) {
	if name != "-" {
		return os.ReadFile(name)
	}
	chunks := make(chan []byte)
	failure := make(chan error, 1)
	go readChunks(ctx, p.Stdin, chunks, failure)
	var text []byte
	pause := time.NewTimer(InputPause)
	defer pause.Stop()
	for {
		select {
		case chunk := <-chunks:
			text = append(text, chunk...)
			pause.Reset(InputPause)
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
			return nil, ErrInterrupted
		}
	}
}

// readChunks sends what it reads to chunks until a read fails, and then that error, io.EOF at the
// end. It has a goroutine of its own because a read cannot be interrupted; that goroutine outlives
// ctx until its read returns.
func readChunks(ctx context.Context, in io.Reader, chunks chan<- []byte, failure chan<- error) {
	for {
		chunk := make([]byte, 64<<10)
		n, err := in.Read(chunk)
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
}

// JSONError returns the error of text that is not JSON, with the byte where it ends to be it, in
// place of the decoder's own text. Other errors are returned as they are.
func JSONError(err error) error {
	var wrong *json.SyntaxError
	switch {
	case !errors.As(err, &wrong):
		return err
	case wrong.Error() == "unexpected end of JSON input":
		return fmt.Errorf("unexpected end at byte %d", wrong.Offset)
	}
	return fmt.Errorf("unexpected character at byte %d", wrong.Offset)
}

// UnknownMember returns the member that a decoder has refused because of DisallowUnknownFields.
func UnknownMember(err error) (name string, ok bool) {
	_, scanErr := fmt.Sscanf(err.Error(), "json: unknown field %q", &name)
	if scanErr != nil {
		return "", false
	}
	return name, true
}
