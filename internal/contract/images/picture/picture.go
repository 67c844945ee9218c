package picture

import (
	"fmt"
	"time"
)

// Limits bound what one picture may cost. Each must be set.
type Limits struct {
	Pixels  int64         // width × height × frames, checked before anything is decoded
	Memory  int64         // bytes of the child
	Timeout time.Duration // of the child, from its start to its end
}

// DefaultMemory is enough for a picture of 50 megapixels in any form that can be decoded; the
// greediest is a progressive CMYK JPEG without subsampling.
const DefaultMemory = 3 << 29

// DefaultTimeout is many times what such a picture takes.
const DefaultTimeout = time.Minute

// MaxSize is the largest size of a variant, MaxSizes how many one picture can have.
const (
	MaxSize  = 8192
	MaxSizes = 20
)

// Info is what an original turned out to be, whatever it was declared as.
type Info struct {
	MIME          string // image/jpeg, image/png, image/gif or image/webp
	Width, Height int    // the right way up
	Bytes         int64  // of the whole file
	// bytes of memory the child held at most, zero where the system does not tell
	Peak int64
}

// Variant is one picture that was made.
type Variant struct {
	Size          int // as asked for; the longer side unless the original is smaller
	Width, Height int
	Bytes         int64
	MIME          string // image/jpeg or image/png
	Path          string // a file in the work directory; variants of equal dimensions share one
}

// Types of errors.
const (
	DecodeError = "decode_error"  // not a whole picture of a type we read
	TooLarge    = "too_large"     // more pixels than the limit
	Unsupported = "unsupported"   // a whole picture that uses what no decoder here reads
	Timeout     = "timeout"       // the child took longer than the limit
	OutOfMemory = "out_of_memory" // the child needed more memory than the limit
	Crashed     = "crashed"       // the child died, or reported what cannot be
)

// Error says why a picture has no variants. Any other error of Run is about the surroundings (the
// disk, the reader, the end of the context), not about the picture.
type Error struct {
	Type  string
	Final bool // the same bytes will fail again, so another attempt is in vain
	Msg   string
}

func (e *Error) Error() string { return e.Type + ": " + e.Msg }

// permanentTypes lists the types that depend on the bytes alone, not on how the machine was doing.
var permanentTypes = map[string]bool{DecodeError: true, TooLarge: true, Unsupported: true}

func errorf(kind, format string, args ...any) *Error {
	return &Error{Type: kind, Final: permanentTypes[kind], Msg: fmt.Sprintf(format, args...)}
}
