package picture

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// similarity is the structural similarity (SSIM) of two planes: the mean over windows of 8 × 8
// samples, or of the whole plane if it is smaller, every third one.
func similarity(a, b *plane) float64 {
	const c1, c2 = 0.01 * 255 * 0.01 * 255, 0.03 * 255 * 0.03 * 255
	w, h := min(8, a.cols), min(8, a.rows)
	total, windows := 0.0, 0.0
	for y := 0; y+h <= a.rows; y += 3 {
		for x := 0; x+w <= a.cols; x += 3 {
			var sa, sb, saa, sbb, sab float64
			for dy := range h {
				for dx := range w {
					p, q := float64(a.row(y + dy)[x+dx]), float64(b.row(y + dy)[x+dx])
					sa, sb = sa+p, sb+q
					saa, sbb, sab = saa+p*p, sbb+q*q, sab+p*q
				}
			}
			n := float64(w * h)
			ma, mb := sa/n, sb/n
			total += (2*ma*mb + c1) * (2*(sab/n-ma*mb) + c2) /
				((ma*ma + mb*mb + c1) * (saa/n - ma*ma + sbb/n - mb*mb + c2))
			windows++
		}
	}
	return total / windows
}

// minSimilarity is how similar a variant is at least to an exact resampling of all samples.
const minSimilarity = 0.98

// assertSimilar makes the variants of a JPEG and compares each plane with one that the kernel alone
// makes of what image/jpeg decodes.
func assertSimilar(t *testing.T, name string, data []byte, sizes ...int) {
	t.Helper()
	h, err := readHeader(data, wideImage.Pixels)
	if err != nil {
		t.Fatal(err)
	}
	r := h.decodeScaled(sizes)
	if r == nil {
		t.Fatalf("%s is left to image/jpeg", name)
	}
	img, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := newRaster(img, image.Rect(0, 0, h.width, h.height), image.Point{})
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range sizes {
		width, height := fitted(h.width, h.height, size)
		small := r.fit(width, height, h.orientation)
		for i := range small.planes {
			got := &small.planes[i]
			want := whole.planes[i].resample((&raster{width: width, height: height}).wanted(i,
				whole.planes[i].channels), h.orientation)
			if got.cols != want.cols || got.rows != want.rows {
				t.Fatalf("%s, size %d: %d × %d samples, want %d × %d", name, size, got.cols, got.rows,
					want.cols, want.rows)
			}
			if s := similarity(got, &want); s < minSimilarity {
				t.Errorf("%s, size %d, plane %d of %d eighths: similarity %.4f", name, size, i,
					whole.planes[i].eighths(&want), s)
			} else {
				t.Logf("%s, size %d, plane %d: similarity %.4f", name, size, i, s)
			}
		}
	}
}

// drawn is a picture of which each sample is a function of its position.
func drawn(w, h int, value func(x, y int) float64) *image.Gray {
	img := image.NewGray(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.SetGray(x, y, color.Gray{clamp(int(math.Round(value(x, y))))})
		}
	}
	return img
}

// TestScaledQuality has what is hard for a decoder that leaves out high frequencies. The sizes are
// those at which a coarser scale begins to be enough, among others.
func TestScaledQuality(t *testing.T) {
	t.Parallel()
	random := uint32(1)
	noise := func() float64 {
		sum := 0.0
		for range 4 {
			random = random*1664525 + 1013904223
			sum += float64(random>>16)/65535 - 0.5
		}
		return sum
	}
	const w, h = 1001, 653
	sizes := []int{1000, 530, 500, 416, 330, 250, 210, 130, 90, 62, 48, 31, 20, 14}
	for name, img := range map[string]image.Image{
		"noise": drawn(w, h, func(_, _ int) float64 { return 128 + 100*noise() }),
		"edges": drawn(w, h, func(x, y int) float64 { return float64(20 + (x/17+y/23)%2*215) }),
		"text": drawn(w, h, func(x, y int) float64 {
			u, v := (x+y/13*5)%9, y%13
			if ((u == 2 || v == 3 || v == 8) || (u+v)%7 == 1) && u < 7 && v < 10 {
				return 15
			}
			return 240
		}),
		"a gradient": drawn(w, h, func(x, y int) float64 { return float64(x+y) * 255 / (w + h) }),
		"scenery":    scenery(w, h),
	} {
		t.Run("G-IP-14 "+name, func(t *testing.T) {
			t.Parallel()
			assertSimilar(t, name, asJPEG(t, img), sizes...)
		})
	}
}

// TestScaledKinds has all samplings, sequential and progressive, and restart intervals.
func TestScaledKinds(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("scaledjpeg/testdata/*-4*.jpg")
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d fixtures, %v", len(paths), err)
	}
	for _, path := range append(paths, "scaledjpeg/testdata/baseline-gray.jpg",
		"scaledjpeg/testdata/progressive-gray.jpg", "testdata/rgb.jpg", "testdata/422.jpg") {
		name := filepath.Base(path)
		if name == "progressive-420-restarts.jpg" {
			continue // image/jpeg refuses it
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		assertSimilar(t, name, data, 301, 160, 100, 50, 20, 7, 1)
		if name == "baseline-420.jpg" || name == "rgb.jpg" {
			for value := 2; value <= 8; value++ {
				assertSimilar(t, fmt.Sprintf("%s, orientation %d", name, value),
					withExif(data, exifData(value)), 100, 20)
			}
		}
	}
}
