// Package scaledjpeg decodes a JPEG into planes that are smaller than the picture: for each block
// of 8 × 8 samples it makes n × n samples, n from 1 to 8, from the lowest frequencies of the block.
// One pass over the file makes planes of several scales.
//
//	segments   decoder.go, frame.go: markers, tables, the sizes of the components
//	scans      scan.go: the order of blocks, restart intervals
//	blocks     sequential.go, progressive.go, huffman.go, bits.go: coefficients, of which only
//	           those that a scale needs are kept
//	samples    render.go, transform.go, kernel.go: inverse transforms, beside the reading of a
//	           sequential scan
//
// A sequential JPEG needs memory for its planes and a few rows of coefficients. A progressive one
// also holds, for each block, the coefficients that the largest scale needs and a bit for each of
// the 64 that says whether it is zero, on which later scans depend.
//
// Encode writes planes as a JPEG, without converting them to pixels.
//
// The package accepts no file that image/jpeg refuses. What it refuses itself may be a sound
// picture: with four components, 12 bits, arithmetic coding, or restart intervals where image/jpeg
// counts them in its own way (ErrUnusual). The caller then asks image/jpeg, which also says what is
// wrong.
package scaledjpeg
