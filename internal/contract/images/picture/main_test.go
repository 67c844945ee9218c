package picture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/image/draw"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if role, ok := roles[os.Args[1]]; ok {
			os.Exit(role(os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(childDir) // nothing when no test needed it
		os.Exit(code)
	}))
}

var childDir string

// buildChild builds the child that does the work in all tests.
var buildChild = sync.OnceValues(func() (binary string, err error) {
	if childDir, err = os.MkdirTemp("", "picture-child-"); err != nil {
		return "", err
	}
	binary = filepath.Join(childDir, "child")
	if out, err := exec.Command("go", "build", "-o", binary,
		"./testdata/child").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return binary, nil
})

var wideImage = Limits{Pixels: 50_000_000, Memory: DefaultMemory, Timeout: DefaultTimeout}

// assertWithin is a processor with the real child.
func assertWithin(tb testing.TB, limits Limits) *Processor {
	tb.Helper()
	binary, err := buildChild()
	if err != nil {
		tb.Fatal(err)
	}
	return &Processor{Command: []string{binary}, Limits: limits}
}

// renderedVariant is a variant with its bytes and its picture.
type renderedVariant struct {
	Variant
	data []byte
	img  image.Image
}

func mustRun(tb testing.TB, original []byte, sizes ...int) (Info, []renderedVariant) {
	tb.Helper()
	info, variants, err := assertWithin(tb, wideImage).Run(context.Background(),
		bytes.NewReader(original), sizes, tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	var all []renderedVariant
	for _, v := range variants {
		all = append(all, mustRead(tb, v))
	}
	return info, all
}

// mustRead decodes a variant with the decoders of the standard library.
func mustRead(tb testing.TB, v Variant) renderedVariant {
	tb.Helper()
	data, err := os.ReadFile(v.Path)
	if err != nil {
		tb.Fatal(err)
	}
	decode := map[string]func(io.Reader) (image.Image, error){"image/jpeg": jpeg.Decode,
		"image/png": png.Decode}[v.MIME]
	img, err := decode(bytes.NewReader(data))
	if err != nil {
		tb.Fatalf("%s: %v", v.Path, err)
	}
	if size := img.Bounds().Size(); size != image.Pt(v.Width, v.Height) ||
		int64(len(data)) != v.Bytes {
		tb.Errorf("the file has %v pixels in %d bytes, the variant says %d × %d in %d", size,
			len(data), v.Width, v.Height, v.Bytes)
	}
	return renderedVariant{v, data, img}
}

func mustFail(tb testing.TB, p *Processor, original []byte, want string, final bool) *Error {
	tb.Helper()
	_, variants, err := p.Run(context.Background(), bytes.NewReader(original), []int{100},
		tb.TempDir())
	var e *Error
	if !errors.As(err, &e) {
		tb.Fatalf("%d variants and %v, want an Error", len(variants), err)
	}
	if e.Type != want || e.Final != final {
		tb.Errorf("got %v (final: %v), want %s (final: %v)", e, e.Final, want, final)
	}
	return e
}

func fixture(tb testing.TB, name string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// drawing is what the fixtures show.
func drawing(tb testing.TB, name string) *image.NRGBA {
	tb.Helper()
	img, err := png.Decode(bytes.NewReader(fixture(tb, name)))
	if err != nil {
		tb.Fatal(err)
	}
	return nrgba(img)
}

func nrgba(img image.Image) *image.NRGBA {
	m := image.NewNRGBA(image.Rectangle{Max: img.Bounds().Size()})
	draw.Draw(m, m.Rect, img, img.Bounds().Min, draw.Src)
	return m
}

func asPNG(tb testing.TB, img image.Image) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, img); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func asJPEG(tb testing.TB, img image.Image) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, &jpeg.Options{Quality: 95}); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// scaled is what a picture should look like in another size, by a plain implementation of the same
// kernel.
func scaled(img image.Image, width, height int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	draw.CatmullRom.Scale(m, m.Rect, img, img.Bounds(), draw.Src, nil)
	return m
}

// psnr is how near two pictures are, in decibels: over what is seen of them, and their
// transparency.
func psnr(a, b image.Image) float64 {
	if a.Bounds().Size() != b.Bounds().Size() {
		return 0
	}
	sum, n := 0.0, 0
	for y := range a.Bounds().Dy() {
		for x := range a.Bounds().Dx() {
			p := color.RGBA64Model.Convert(a.At(a.Bounds().Min.X+x,
				a.Bounds().Min.Y+y)).(color.RGBA64)
			q := color.RGBA64Model.Convert(b.At(b.Bounds().Min.X+x,
				b.Bounds().Min.Y+y)).(color.RGBA64)
			for _, d := range []float64{float64(p.R) - float64(q.R), float64(p.G) - float64(q.G),
				float64(p.B) - float64(q.B),
				float64(p.A) - float64(q.A)} {
				sum += d * d
				n++
			}
		}
	}
	return 10 * math.Log10(65535*65535*float64(n)/sum)
}

// assertNear fails unless two pictures are at least so near.
func assertNear(tb testing.TB, what string, got, want image.Image, minPSNR float64) {
	tb.Helper()
	if db := psnr(got, want); db < minPSNR {
		tb.Errorf("%s: %.1f dB of what it should be (%v and %v), want %.0f", what, db, got.Bounds(),
			want.Bounds(), minPSNR)
	} else {
		tb.Logf("%s: %.1f dB", what, db)
	}
}

func waitFor[T any](tb testing.TB, what string, c <-chan T) T {
	tb.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	select {
	case v := <-c:
		return v
	case <-limit.C:
		tb.Fatalf("%s did not happen within a minute", what)
	}
	panic("unreachable")
}
