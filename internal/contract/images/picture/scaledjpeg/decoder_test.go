package scaledjpeg

import (
	"bytes"
	"errors"
	"image"
	"image/jpeg"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// unusual is the fixture that only image/jpeg is asked about.
const unusual = "progressive-420-restarts.jpg"

// fixtures are the JPEGs of testdata by name.
func fixtures(tb testing.TB) map[string][]byte {
	tb.Helper()
	paths, err := filepath.Glob("testdata/*.jpg")
	if err != nil || len(paths) < 10 {
		tb.Fatalf("%d fixtures, %v", len(paths), err)
	}
	all := map[string][]byte{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		all[filepath.Base(path)] = data
	}
	return all
}

// scales asks for the same scales in each component.
func scales(eighths ...int) func(*Picture) [][]int {
	return func(p *Picture) [][]int {
		all := make([][]int, len(p.Components))
		for i := range all {
			all[i] = eighths
		}
		return all
	}
}

func mustDecode(tb testing.TB, data []byte, eighths ...int) *Picture {
	tb.Helper()
	p, err := Decode(data, scales(eighths...))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// reference is a plane as image/jpeg decodes it.
type reference struct {
	pix          []byte
	step, stride int
}

func (r *reference) at(x, y int) int { return int(r.pix[y*r.stride+x*r.step]) }

// references decodes the components with image/jpeg.
func references(data []byte) ([]reference, error) {
	img, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	switch m := img.(type) {
	case *image.Gray:
		return []reference{{m.Pix, 1, m.Stride}}, nil
	case *image.RGBA:
		return []reference{{m.Pix, 4, m.Stride}, {m.Pix[1:], 4, m.Stride},
			{m.Pix[2:], 4, m.Stride}}, nil
	case *image.YCbCr:
		return []reference{{m.Y, 1, m.YStride}, {m.Cb, 1, m.CStride}, {m.Cr, 1, m.CStride}}, nil
	}
	return nil, errors.New("four components")
}

func mustReference(tb testing.TB, data []byte) []reference {
	tb.Helper()
	all, err := references(data)
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// TestWholeScale compares all samples with those of image/jpeg, whose transform rounds otherwise.
func TestWholeScale(t *testing.T) {
	t.Parallel()
	for name, data := range fixtures(t) {
		if name == unusual {
			continue
		}
		p := mustDecode(t, data, 8)
		for i, want := range mustReference(t, data) {
			got := p.Components[i].Planes[0]
			for y := range got.Rows {
				for x := range got.Cols {
					v, w := int(got.Pix[y*got.Stride+x]), want.at(x, y)
					if v < w-1 || v > w+1 {
						t.Fatalf("%s, component %d at %d, %d: %d, want %d", name, i, x, y, v, w)
					}
				}
			}
		}
	}
}

// TestMeans shows that a sample of one eighth is the mean of the block, and where it lies.
func TestMeans(t *testing.T) {
	t.Parallel()
	for name, data := range fixtures(t) {
		if name == unusual {
			continue
		}
		p := mustDecode(t, data, 1)
		for i, want := range mustReference(t, data) {
			c := p.Components[i]
			got := c.Planes[0]
			if cols, rows := divideUp(p.Width, 8*c.SX), divideUp(p.Height, 8*c.SY); got.Cols != cols ||
				got.Rows != rows {
				t.Errorf("%s: %d × %d samples, want %d × %d", name, got.Cols, got.Rows, cols, rows)
			}
			compared := 0
			for y := range p.Height / c.SY / 8 {
				for x := range p.Width / c.SX / 8 {
					mean, inside := want.mean(x, y)
					if !inside {
						continue
					}
					compared++
					if v := float64(got.Pix[y*got.Stride+x]); v < mean-1 || v > mean+1 {
						t.Fatalf("%s, component %d at %d, %d: %v, want %v", name, i, x, y, v, mean)
					}
				}
			}
			if compared == 0 {
				t.Errorf("%s: no block of component %d was compared", name, i)
			}
		}
	}
}

// mean is the mean of a block. It is not inside if a sample is at the end of the range, where
// others may have been cut off.
func (r *reference) mean(x, y int) (mean float64, inside bool) {
	sum := 0
	for dy := range 8 {
		for dx := range 8 {
			v := r.at(8*x+dx, 8*y+dy)
			if v == 0 || v == 255 {
				return 0, false
			}
			sum += v
		}
	}
	return float64(sum) / 64, true
}

// TestProgressive shows that a progressive JPEG has the same samples, in all scales, as a
// sequential one of the same coefficients, alone or together with other scales.
func TestProgressive(t *testing.T) {
	t.Parallel()
	all := fixtures(t)
	compared := 0
	for name, data := range all {
		other, ok := strings.CutPrefix(name, "baseline-")
		if !ok || all["progressive-"+other] == nil || "progressive-"+other == unusual {
			continue
		}
		compared++
		together := mustDecode(t, data, 1, 2, 3, 4, 5, 6, 8)
		for at, n := range []int{1, 2, 3, 4, 5, 6, 8} {
			alone := mustDecode(t, all["progressive-"+other], n)
			for i, c := range alone.Components {
				if !bytes.Equal(visible(&c.Planes[0]), visible(&together.Components[i].Planes[at])) {
					t.Errorf("%s, component %d: other samples in %d eighths", other, i, n)
				}
			}
		}
	}
	if compared != 5 {
		t.Errorf("%d pairs, want 5", compared)
	}
}

// visible are the samples without those beside and below the picture.
func visible(p *Plane) []byte {
	var all []byte
	for y := range p.Rows {
		all = append(all, p.Pix[y*p.Stride:][:p.Cols]...)
	}
	return all
}

func TestTruncated(t *testing.T) {
	t.Parallel()
	for name, data := range fixtures(t) {
		step := 1 + len(data)/12
		if strings.HasPrefix(name, "small-") {
			step = 1 + len(data)/300
		}
		for n := 0; n < len(data); n += step {
			if _, err := Decode(data[:n], scales(5, 1)); err == nil {
				t.Fatalf("%s: the first %d of %d bytes are a picture", name, n, len(data))
			}
		}
	}
}

func TestUnusual(t *testing.T) {
	t.Parallel()
	all := fixtures(t)
	baseline := all["baseline-444.jpg"]
	frame := bytes.Index(baseline, []byte{0xff, markerSOF0})
	changed := func(at int, b byte) []byte {
		data := bytes.Clone(baseline)
		data[frame+at] = b
		return data
	}
	tables := bytes.Index(baseline, []byte{0xff, markerDHT})
	overfull := bytes.Clone(baseline)
	overfull[tables+5] = 3 // codes of one bit
	overfull[tables+6], overfull[tables+7] = 0, 0
	for name, data := range map[string][]byte{
		"restarts that image/jpeg counts in its own way": all[unusual],
		"12 bits":             changed(4, 12),
		"a sampling of three": changed(11, 0x31),
		"different chroma":    changed(17, 0x21),
		"overfull code":       overfull,
	} {
		if _, err := Decode(data, scales(8)); err == nil ||
			(!errors.Is(err, ErrUnusual) && !errors.Is(err, errInvalid)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestMemory shows that a sequential JPEG takes memory for its planes and little more, and a
// progressive one some bytes for each block. It measures what the whole process allocates, so no
// other test may run beside it.
func TestMemory(t *testing.T) {
	const side = 2048
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewYCbCr(image.Rect(0, 0, side, side),
		image.YCbCrSubsampleRatio420), nil); err != nil {
		t.Fatal(err)
	}
	const samples = side * side * 3 / 2
	for _, c := range []struct {
		eighths int
		limit   uint64
	}{{1, samples/64 + 1<<20}, {3, samples*9/64 + 1<<20}, {5, samples*25/64 + 1<<20}} {
		if got := allocated(t, b.Bytes(), c.eighths); got > c.limit {
			t.Errorf("in %d eighths: %d bytes, want at most %d", c.eighths, got, c.limit)
		}
	}
	progressive := fixtures(t)["progressive-444.jpg"]
	frame := bytes.Index(progressive, []byte{0xff, markerSOF2})
	// It ends with an error in the first scan, when all coefficients are allocated.
	progressive[frame+5], progressive[frame+6] = side>>8, side&255
	progressive[frame+7], progressive[frame+8] = side>>8, side&255
	blocks := uint64(3 * side * side / 64)
	if got, limit := allocated(t, progressive, 5), blocks*(25+26*2+8)+1<<20; got > limit {
		t.Errorf("progressive: %d bytes, want at most %d", got, limit)
	}
}

func allocated(tb testing.TB, data []byte, eighths int) uint64 {
	tb.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, err := Decode(data, scales(eighths))
	runtime.ReadMemStats(&after)
	if err == nil && p.Width == 0 {
		tb.Fatal("no picture")
	}
	return after.TotalAlloc - before.TotalAlloc
}
