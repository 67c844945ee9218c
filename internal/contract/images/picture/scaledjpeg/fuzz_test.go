package scaledjpeg

import (
	"bytes"
	"errors"
	"image/jpeg"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// FuzzDecode compares with image/jpeg: neither accepts what the other refuses, unless it is
// unusual, and samples are the same.
func FuzzDecode(f *testing.F) {
	for name, data := range fixtures(f) {
		if strings.HasPrefix(name, "small-") {
			f.Add(data)
			f.Add(data[:len(data)*2/3])
		}
	}
	for _, name := range []string{"rgb.jpg", "cmyk.jpg", "422.jpg", "arithmetic.jpg"} {
		data, err := os.ReadFile("../testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { compare(t, data) })
}

// TestBroken does the same with the small fixtures and one, two or three wrong bytes, and with
// tables of zeros.
func TestBroken(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	accepted, refused := 0, 0
	for name, data := range fixtures(t) {
		if !strings.HasPrefix(name, "small-") {
			continue
		}
		for round := range 240 {
			broken := bytes.Clone(data)
			for range 1 + round%3 {
				broken[2+random.IntN(len(broken)-2)] = byte(random.IntN(256))
			}
			if compare(t, broken) {
				accepted++
			} else {
				refused++
			}
		}
		zeros := bytes.Clone(data)
		clear(zeros[bytes.Index(zeros, []byte{0xff, markerDQT})+5:][:64])
		if !compare(t, zeros) {
			t.Errorf("%s: a quantization of zeros is refused", name)
		}
	}
	if accepted < 100 || refused < 100 {
		t.Errorf("%d were accepted and %d refused", accepted, refused)
	}
}

// compare decodes with this package and with image/jpeg. It reports whether there is a picture.
func compare(t *testing.T, data []byte) (accepted bool) {
	t.Helper()
	config, err := jpeg.DecodeConfig(bytes.NewReader(data))
	pixels := config.Width * config.Height
	if err != nil || pixels == 0 || pixels > 1<<13 {
		return false
	}
	p, err := Decode(data, scales(8, 1))
	if errors.Is(err, ErrUnusual) {
		return false
	}
	want, wantErr := references(data)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("got %v, image/jpeg says %v", err, wantErr)
	}
	if err != nil {
		return false
	}
	if p.Width != config.Width || p.Height != config.Height || len(p.Components) != len(want) {
		t.Fatalf("%d × %d samples of %d components", p.Width, p.Height, len(p.Components))
	}
	for i := range want {
		compareBlocks(t, p, &p.Components[i], &want[i])
	}
	return true
}

// compareBlocks compares the blocks that lie in the picture. A block is left out if a sample is at
// the end of the range: its coefficients may be too large for image/jpeg, where sums overflow.
func compareBlocks(t *testing.T, p *Picture, c *Component, want *reference) {
	whole, eighth := &c.Planes[0], &c.Planes[1]
	ours := reference{whole.Pix, 1, whole.Stride}
	for y := range p.Height / c.SY / 8 {
		for x := range p.Width / c.SX / 8 {
			mean, inside := ours.mean(x, y)
			if !inside {
				continue
			}
			if v := float64(eighth.Pix[y*eighth.Stride+x]); v < mean-1 || v > mean+1 {
				t.Fatalf("block %d, %d: %v in one eighth, the mean is %v", x, y, v, mean)
			}
			for at := range 64 {
				px, py := 8*x+at%8, 8*y+at/8
				if v, w := ours.at(px, py), want.at(px, py); v < w-1 || v > w+1 {
					t.Fatalf("at %d, %d: %d, image/jpeg has %d", px, py, v, w)
				}
			}
		}
	}
}
