// Package picture makes the variants of one uploaded picture: it reads bytes and writes files, and
// depends on no HTTP, store or job.
//
// Pictures are untrusted, so the server itself never decodes them. Processor.Run copies the
// original into a work directory and starts a child process, the same binary, which only calls
// Child. The child has the file as its standard input, an empty environment, and limits on memory,
// time and written files that the kernel enforces. Any failure of the child, also its death, is an
// Error of that picture and affects nothing else.
//
//	parent: Run   copy → start child ──────────────────────────────→ check the report → variants
//	child:  Child        read headers → limits → decode → resample → encode → report
//
// Strict readers of this package (jpeg.go, png.go, gif.go, webp.go) read the headers before any
// decoder sees the bytes: type, dimensions, number of frames, orientation and colour space. If
// these are within the limits, the decoders of the standard library and of x/image run. A JPEG is
// made smaller while it is decoded, by package scaledjpeg, if that can read it.
//
// A variant is the upright picture, scaled so that its longer side is at most the requested size,
// and never enlarged. It keeps the colour profile and the transparency; all other metadata is
// dropped, and no byte of the original file is copied. A variant is deterministic: its bytes depend
// on the original and the size alone. A JPEG has variants in JPEG, PNG and GIF (its first frame) in
// PNG, and WebP in PNG if it has transparency, otherwise in JPEG. WebP is not written, as there is
// no mature encoder in pure Go (docs/decisions/0024-pictures.md).
package picture
