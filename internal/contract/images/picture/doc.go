// Package picture makes the variants of one uploaded picture: bytes in, files out. It knows no
// HTTP, no store and no job.
//
// Pictures come from strangers, so they are never decoded in the server. Processor.Run copies the
// original into a work directory and starts a child, this same binary again (Child is all it runs
// there), with the file as its standard input, an empty environment, and limits on memory, time and
// what it may write that the kernel enforces. What goes wrong in the child, its death included, is
// an Error of that picture and nothing else.
//
//	parent: Run   copy → start child ──────────────────────────────→ check the report → variants
//	child:  Child        read headers → limits → decode → resample → encode → report
//
// The headers are read by our own strict readers (jpeg.go, png.go, gif.go, webp.go) before any
// decoder sees the bytes: what it is, how large, how many frames, which way up, in which colours.
// Only then the decoders of the standard library and of x/image run.
//
// What a variant is: the picture the right way up, its longer side at most the size asked for and
// never enlarged, with its colour profile and its transparency and without anything else: no other
// metadata, and no byte of the original file is copied. The same original and size give the same
// bytes, whatever other sizes are asked for and however often. JPEG becomes JPEG, PNG and GIF (its
// first frame) become PNG, WebP becomes PNG when it has transparency, else JPEG. WebP is not
// written: no encoder in pure Go is old and well-kept enough (docs/decisions/0024-pictures.md).
package picture
