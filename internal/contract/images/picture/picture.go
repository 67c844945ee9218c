package picture

import (
	"fmt"
	"time"
)

// Limits bound the resources for one picture. Each must be set.
type Limits struct {
	Pixels  int64         // width × height × frames, checked before anything is decoded
	Memory  int64         // of the child, in bytes
	Timeout time.Duration // of the child, from its start to its end
}

// DefaultMemory is enough for a picture of 50 megapixels in any supported form; a progressive CMYK
// JPEG without subsampling needs most.
const DefaultMemory = 3 << 29

// DefaultTimeout is many times the time that such a picture takes.
const DefaultTimeout = time.Minute

// MaxSize is the largest size of a variant, MaxSizes the largest number of sizes in one run.
const (
	MaxSize  = 8192
	MaxSizes = 20
)

// Info describes an original as it was detected.
type Info struct {
	MIME          string // image/jpeg, image/png, image/gif or image/webp
	Width, Height int    // upright
	Bytes         int64  // of the whole file
	Peak          int64  // largest memory of the child in bytes; 0 if the system does not report it
}

// Variant is one file that was made.
type Variant struct {
	Size          int // as requested: the longer side, unless the original is smaller
	Width, Height int
	Bytes         int64
	MIME          string // image/jpeg or image/png
	Path          string // a file in the work directory; variants of equal dimensions share one
}

// Types of errors. Each picture has a child process of its own.
const (
	DecodeError = "decode_error"  // it is not a complete picture of a supported type
	TooLarge    = "too_large"     // it has more pixels than the limit
	Unsupported = "unsupported"   // it has features that the decoders lack
	Timeout     = "timeout"       // its process took longer than the limit
	OutOfMemory = "out_of_memory" // its process needed more memory than the limit
	Crashed     = "crashed"       // its process died or its report is invalid
)

// Error says why a picture has no variants. Any other error of Run is not about the picture but
// about the disk, the reader or the context.
type Error struct {
	Type  string
	Final bool // the same bytes fail in every attempt
	Msg   string
}

// Error implements error.
func (e *Error) Error() string { return e.Type + ": " + e.Msg }

// permanentTypes are the types that depend on the bytes alone, not on the load of the machine.
var permanentTypes = map[string]bool{DecodeError: true, TooLarge: true, Unsupported: true}

// errorf returns an Error of one of the types above; the type alone says whether it is final.
func errorf(kind, format string, args ...any) *Error {
	return &Error{Type: kind, Final: permanentTypes[kind], Msg: fmt.Sprintf(format, args...)}
}
