package picture

import (
	"bytes"
	"flag"
	"image"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pictureFlag names a JPEG for the benchmarks; without it they draw one.
var pictureFlag = flag.String("picture", "", "a JPEG for the benchmarks, of at most 50 megapixels")

// BenchmarkJPEG compares the processor time of a JPEG that is decoded in scales and one that is
// decoded by image/jpeg in full, in alternation, with the variants of the default sizes and without
// them.
func BenchmarkJPEG(b *testing.B) {
	data := benchmarkPicture(b)
	sizes := []int{100, 400, 800, 1600}
	b.Chdir(b.TempDir())
	var decoding, all [2][]time.Duration
	for b.Loop() {
		for i, decode := range []func(h *header) (*raster, error){
			func(h *header) (*raster, error) { return h.decode(sizes) },
			func(h *header) (*raster, error) { return h.decodeWhole() },
		} {
			h, err := readHeader(data, wideImage.Pixels)
			if err != nil {
				b.Fatal(err)
			}
			before := processorTime(b)
			r, err := decode(&h)
			if err != nil {
				b.Fatal(err)
			}
			decoded := processorTime(b)
			if _, err := h.variants(r, sizes); err != nil {
				b.Fatal(err)
			}
			decoding[i] = append(decoding[i], decoded-before)
			all[i] = append(all[i], processorTime(b)-before)
			for _, size := range sizes {
				if err := os.Remove(fileName(size, "image/jpeg")); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	median := func(times []time.Duration) float64 {
		slices.Sort(times)
		return float64(times[len(times)/2].Microseconds()) / 1000
	}
	for i, name := range []string{"scaled", "whole"} {
		b.ReportMetric(median(decoding[i]), name+"-decoding-ms")
		b.ReportMetric(median(all[i]), name+"-all-ms")
	}
}

// benchmarkPicture is the JPEG of the flag, or scenery of 12 megapixels.
func benchmarkPicture(b *testing.B) []byte {
	b.Helper()
	if *pictureFlag != "" {
		data, err := os.ReadFile(*pictureFlag)
		if err != nil {
			b.Fatal(err)
		}
		return data
	}
	tile := scenery(800, 600)
	img := image.NewNRGBA(image.Rect(0, 0, 4000, 3000))
	for y := range 3000 {
		for x := 0; x < 4000; x += 800 {
			copy(img.Pix[y*img.Stride+4*x:], tile.Pix[y%600*tile.Stride:][:tile.Stride])
		}
	}
	return bytes.Clone(asJPEG(b, img))
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
