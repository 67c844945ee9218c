package scaledjpeg

import (
	"bytes"
	"errors"
	"runtime"
)

// Picture is a decoded JPEG: one component of grey, or three of Y, Cb and Cr or of red, green and
// blue.
type Picture struct {
	Width, Height int
	RGB           bool // the three components are red, green and blue
	Components    []Component
}

// Component has the planes of a component in the scales that were asked for, in the same order.
type Component struct {
	SX, SY int // columns and rows of the picture that share one sample of the whole component
	Planes []Plane
}

// Plane holds the samples of a component in one scale. Those of the last column and row may lie in
// part outside of the picture.
type Plane struct {
	Eighths    int // samples for eight of the whole component
	Cols, Rows int
	Stride     int
	Pix        []byte
}

// Errors. Any other error of Decode is none of the picture.
var (
	// ErrUnusual is a JPEG that image/jpeg may be able to decode and this package is not.
	ErrUnusual = errors.New("an unusual JPEG")

	errInvalid   = errors.New("an invalid JPEG")
	errTruncated = errors.New("the JPEG ends before the picture does")
)

// Decode decodes a JPEG. Before the first scan it calls scales with the picture, which has no
// planes yet. The result has, for each component, the scales of its planes in eighths: at least
// one, each once, 1 to 6 or 8. The caller has checked the dimensions of the picture.
func Decode(data []byte, scales func(p *Picture) [][]int) (*Picture, error) {
	d := decoder{data: data, scales: scales, workers: runtime.GOMAXPROCS(0)}
	if err := d.decode(); err != nil {
		return nil, err
	}
	return d.picture, nil
}

const (
	markerSOF0  = 0xc0 // sequential
	markerSOF1  = 0xc1 // sequential, with more tables
	markerSOF2  = 0xc2 // progressive
	markerDHT   = 0xc4
	markerRST0  = 0xd0
	markerRST7  = 0xd7
	markerSOI   = 0xd8
	markerEOI   = 0xd9
	markerSOS   = 0xda
	markerDQT   = 0xdb
	markerDRI   = 0xdd
	markerAPP0  = 0xe0
	markerAPP14 = 0xee
	markerAPP15 = 0xef
	markerCOM   = 0xfe
)

// decoder is what has been read of a file so far. A segment changes what the scans behind it use.
type decoder struct {
	data    []byte
	pos     int
	scales  func(p *Picture) [][]int
	workers int

	frame
	picture  *Picture     // from the first scan on
	interval int          // MCUs between restart markers; 0 for none
	huffman  [2][4]*table // of DC and AC; nil if undefined
	quant    [4][64]int32 // in zigzag order
	eobRun   int32        // the number of following blocks that have no more coefficients

	jfif     bool
	adobe    bool
	adobeRGB bool
}

// decode reads all segments up to the end of the image.
func (d *decoder) decode() error {
	if !bytes.HasPrefix(d.data, []byte{0xff, markerSOI}) {
		return errInvalid
	}
	d.pos = 2
	for {
		marker, err := d.nextMarker()
		if err != nil {
			return err
		}
		if marker == markerEOI {
			break
		}
		if marker >= markerRST0 && marker <= markerRST7 {
			continue // one behind the last interval is ignored
		}
		segment, err := d.segment()
		if err != nil {
			return err
		}
		if err := d.process(marker, segment); err != nil {
			return err
		}
	}
	if d.picture == nil {
		return errInvalid
	}
	if d.picture.RGB != d.isRGB() {
		return ErrUnusual
	}
	if d.progressive {
		d.renderFrame()
	}
	return nil
}

// nextMarker skips to the next marker, and whatever is before it. FF 00 is no marker. Any number of
// FF may precede one, and the next byte is a marker whatever it is, as for image/jpeg.
func (d *decoder) nextMarker() (byte, error) {
	for {
		at := bytes.IndexByte(d.data[d.pos:], 0xff)
		if at < 0 || d.pos+at+1 >= len(d.data) {
			return 0, errTruncated
		}
		d.pos += at + 1
		if d.data[d.pos] == 0 {
			d.pos++
			continue
		}
		for d.pos < len(d.data) && d.data[d.pos] == 0xff {
			d.pos++
		}
		if d.pos >= len(d.data) {
			return 0, errTruncated
		}
		d.pos++
		return d.data[d.pos-1], nil
	}
}

// segment returns the bytes of a segment behind its length.
func (d *decoder) segment() ([]byte, error) {
	if d.pos+2 > len(d.data) {
		return nil, errTruncated
	}
	n := int(d.data[d.pos])<<8 | int(d.data[d.pos+1])
	if n < 2 || d.pos+n > len(d.data) {
		return nil, errTruncated
	}
	segment := d.data[d.pos+2 : d.pos+n]
	d.pos += n
	return segment, nil
}

// process applies a segment. That of a scan is followed by the scan itself.
func (d *decoder) process(marker byte, s []byte) error {
	switch marker {
	case markerSOF0, markerSOF1, markerSOF2:
		return d.startFrame(marker, s)
	case markerDHT:
		return d.defineHuffman(s)
	case markerDQT:
		return d.defineQuantization(s)
	case markerDRI:
		if len(s) != 2 {
			return errInvalid
		}
		d.interval = int(s[0])<<8 | int(s[1])
		return nil
	case markerSOS:
		return d.scan(s)
	case markerAPP0:
		if len(s) >= 5 {
			d.jfif = string(s[:5]) == "JFIF\x00"
		}
		return nil
	case markerAPP14:
		if len(s) >= 12 && string(s[:5]) == "Adobe" {
			d.adobe, d.adobeRGB = true, s[11] == 0
		}
		return nil
	}
	if (marker >= markerAPP0 && marker <= markerAPP15) || marker == markerCOM {
		return nil
	}
	return errInvalid
}

// defineHuffman reads the tables of a DHT segment: class and number, the number of codes of each
// length, and the symbols.
func (d *decoder) defineHuffman(s []byte) error {
	for len(s) > 0 {
		if len(s) < 17 {
			return errInvalid
		}
		class, number := s[0]>>4, s[0]&15
		if class > 1 || number > d.maxTable() {
			return errInvalid
		}
		counts := [16]byte(s[1:17])
		n := 0
		for _, count := range counts {
			n += int(count)
		}
		if n == 0 || n > 256 || n > len(s)-17 {
			return errInvalid
		}
		t, err := newTable(&counts, s[17:17+n], class == 1)
		if err != nil {
			return err
		}
		d.huffman[class][number] = t
		s = s[17+n:]
	}
	return nil
}

// maxTable is the largest number of a Huffman table.
func (d *decoder) maxTable() byte {
	if d.baseline {
		return 1
	}
	return 3
}

// defineQuantization reads the tables of a DQT segment: precision and number, and 64 values of one
// byte or two. Like image/jpeg it ignores a last table without values.
func (d *decoder) defineQuantization(s []byte) error {
	for len(s) > 0 {
		bytes, number := 1+int(s[0]>>4), s[0]&15
		if bytes > 2 || number > 3 {
			return errInvalid
		}
		s = s[1:]
		if len(s) == 0 {
			return nil
		}
		if len(s) < 64*bytes {
			return errInvalid
		}
		for i := range d.quant[number] {
			v := int32(s[bytes*i])
			if bytes == 2 {
				v = v<<8 | int32(s[2*i+1])
			}
			d.quant[number][i] = v
		}
		s = s[64*bytes:]
	}
	return nil
}
