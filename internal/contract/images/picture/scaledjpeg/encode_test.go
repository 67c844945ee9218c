package scaledjpeg

import (
	"bytes"
	"errors"
	"image"
	"image/jpeg"
	"slices"
	"strings"
	"testing"
)

// planesOf are the planes of an image, without those beside it.
func planesOf(img image.Image) []Plane {
	size := img.Bounds().Size()
	switch m := img.(type) {
	case *image.Gray:
		return []Plane{{Cols: size.X, Rows: size.Y, Stride: m.Stride, Pix: m.Pix}}
	case *image.YCbCr:
		chroma := Plane{Cols: divideUp(size.X, 2), Rows: divideUp(size.Y, 2), Stride: m.CStride}
		cb, cr := chroma, chroma
		cb.Pix, cr.Pix = m.Cb, m.Cr
		return []Plane{{Cols: size.X, Rows: size.Y, Stride: m.YStride, Pix: m.Y}, cb, cr}
	}
	return nil
}

func mustEncode(tb testing.TB, planes []Plane, quality int) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := Encode(&b, planes, quality); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// TestEncode compares with image/jpeg: the same header, and samples that differ from the original
// by as much.
func TestEncode(t *testing.T) {
	t.Parallel()
	for name, data := range fixtures(t) {
		if strings.HasPrefix(name, "progressive-") {
			continue // the same pictures, and one that image/jpeg refuses
		}
		img, err := jpeg.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := img.(*image.YCbCr); ok && m.SubsampleRatio != image.YCbCrSubsampleRatio420 {
			continue
		}
		planes := planesOf(img)
		for _, quality := range []int{1, 40, 80, 100} {
			got := mustEncode(t, planes, quality)
			var b bytes.Buffer
			if err := jpeg.Encode(&b, img, &jpeg.Options{Quality: quality}); err != nil {
				t.Fatal(err)
			}
			want := b.Bytes()
			header := bytes.Index(want, []byte{0xff, markerSOS}) + 10
			if len(planes) == 1 { // it also has the quantization of chroma
				want = slices.Concat(want[:4], []byte{0, 67}, want[6:71], want[136:])
				header -= 65
			}
			if !bytes.Equal(got[:header], want[:header]) {
				t.Errorf("%s, quality %d: another header", name, quality)
			}
			if size, other := len(got), len(want); size < other*99/100 || size > other*101/100 {
				t.Errorf("%s, quality %d: %d bytes, image/jpeg has %d", name, quality, size, other)
			}
			if strings.HasPrefix(name, "small-") {
				continue // too few samples to compare
			}
			for i, p := range planes {
				ours, theirs := squares(t, got, p, i), squares(t, b.Bytes(), p, i)
				if ours > theirs*1.02+0.1 {
					t.Errorf("%s, quality %d, plane %d: mean square error %.2f, image/jpeg has %.2f",
						name, quality, i, ours, theirs)
				}
			}
		}
	}
}

// squares is the mean square error of an encoded plane.
func squares(tb testing.TB, data []byte, want Plane, component int) float64 {
	tb.Helper()
	got := mustReference(tb, data)[component]
	sum := 0
	for y := range want.Rows {
		for x := range want.Cols {
			d := got.at(x, y) - int(want.Pix[y*want.Stride+x])
			sum += d * d
		}
	}
	return float64(sum) / float64(want.Rows*want.Cols)
}

// TestEncodeAnySize has all sizes up to some blocks, and the hardest samples: at the ends of the
// range, at random.
func TestEncodeAnySize(t *testing.T) {
	t.Parallel()
	random := uint32(7)
	for w := 1; w <= 34; w += 3 {
		for h := 1; h <= 34; h += 2 {
			img := image.NewYCbCr(image.Rect(0, 0, w, h), image.YCbCrSubsampleRatio420)
			for _, pix := range [][]byte{img.Y, img.Cb, img.Cr} {
				for i := range pix {
					random = random*1664525 + 1013904223
					pix[i] = byte(int32(random) >> 31)
				}
			}
			planes := planesOf(img)
			for _, planes := range [][]Plane{planes, planes[:1]} {
				data := mustEncode(t, planes, 100)
				for i, p := range planes {
					if e := squares(t, data, p, i); e > 3 {
						t.Errorf("%d × %d, plane %d of %d: mean square error %.2f", w, h, i,
							len(planes), e)
					}
				}
			}
		}
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

func TestEncodeReturnsErrors(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	p := Plane{Cols: 20, Rows: 20, Stride: 20, Pix: make([]byte, 400)}
	if err := Encode(failingWriter{full}, []Plane{p}, 80); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}
