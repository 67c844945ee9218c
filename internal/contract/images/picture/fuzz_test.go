package picture

import (
	"errors"
	"io"
	"testing"
)

// fuzzPixels keeps what the fuzzers decode small.
const fuzzPixels = 1 << 14

func seeds(f *testing.F) {
	for _, k := range kinds(f) {
		f.Add(k.data)
	}
	for _, h := range hostile(f) {
		f.Add(h.data[:min(len(h.data), 1<<12)])
	}
	f.Add(withExif(asJPEG(f, drawing(f, "drawing.png")), exifData(6)))
	f.Add(withChunks(asPNG(f, drawing(f, "drawing.png")), pngProfile(profileOf(profileRGB, 200)),
		appendChunk(nil, "eXIf", exifData(8))))
}

// FuzzHeader reads headers alone: whatever the bytes, the answer is a header within the limit or a
// final Error.
func FuzzHeader(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := readHeader(data, fuzzPixels)
		var e *Error
		switch {
		case errors.As(err, &e) && e.Final:
		case err != nil:
			t.Errorf("the error %v is not final", err)
		case h.width < 1 || h.height < 1 || h.frames < 1 || h.width*h.height*h.frames > fuzzPixels:
			t.Errorf("%d × %d pixels in %d frames are let through", h.width, h.height, h.frames)
		case len(h.profile) > maxProfile ||
			(len(h.profile) > 0 && checkProfile(h.profile, profileRGB) == nil &&
				checkProfile(h.profile, profileGray) == nil):
			t.Errorf("a profile of %d bytes is let through", len(h.profile))
		}
	})
}

// FuzzPicture goes all the way: what the headers let through is decoded, made smaller and encoded,
// or ends in a final Error.
func FuzzPicture(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := readHeader(data, fuzzPixels)
		if err != nil {
			return
		}
		sizes := []int{max(h.width, h.height), 13, 1}
		r, err := h.decode(sizes)
		var e *Error
		if errors.As(err, &e) && e.Final {
			return
		}
		if err != nil {
			t.Fatalf("the error %v is not final", err)
		}
		if r.width != h.width || r.height != h.height {
			t.Fatalf("%d × %d pixels became %d × %d", h.width, h.height, r.width, r.height)
		}
		mime := h.output(r)
		for _, side := range sizes {
			width, height := fitted(r.width, r.height, side)
			small := r.fit(width, height, h.orientation)
			if err := h.encode(io.Discard, small, mime); err != nil {
				t.Errorf("size %d: %v", side, err)
			}
		}
	})
}

func FuzzExif(f *testing.F) {
	f.Add(exifData(3))
	f.Add([]byte("II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x05\x00\x00\x00"))
	f.Fuzz(func(_ *testing.T, data []byte) { exifOrientation(data) })
}
