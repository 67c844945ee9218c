package picture

import (
	"bytes"
	"image"
	"image/color"
	"image/gif"
	"math"
	"testing"

	"golang.org/x/image/draw"
)

// kinds are pictures of every kind that is read, all of the same drawing, with what they become.
func kinds(t testing.TB) []struct {
	name string
	data []byte
	mime string
	out  string
	want image.Image
	min  float64
} {
	opaque, alpha := drawing(t, "drawing.png"), drawing(t, "drawing-alpha.png")
	grey := image.NewGray(opaque.Rect)
	draw.Draw(grey, grey.Rect, opaque, image.Point{}, draw.Src)
	grey16, deep, deepAlpha := image.NewGray16(opaque.Rect), image.NewRGBA64(opaque.Rect),
		image.NewNRGBA64(opaque.Rect)
	draw.Draw(grey16, grey.Rect, grey, image.Point{}, draw.Src)
	draw.Draw(deep, deep.Rect, opaque, image.Point{}, draw.Src)
	draw.Draw(deepAlpha, deep.Rect, alpha, image.Point{}, draw.Src)
	part := image.NewNRGBA(opaque.Rect)
	inner := image.Rect(20, 10, 80, 60)
	draw.Draw(part, inner, opaque, inner.Min, draw.Src)
	still, moving, offset := gifs(t, opaque)
	jpg, pngs, gifs, webps := "image/jpeg", "image/png", "image/gif", "image/webp"
	return []struct {
		name string
		data []byte
		mime string
		out  string
		want image.Image
		min  float64
	}{
		{"JPEG", asJPEG(t, opaque), jpg, jpg, opaque, 31},
		{"JPEG 4:2:2", fixture(t, "422.jpg"), jpg, jpg, opaque, 31},
		{"JPEG progressive 4:4:4", fixture(t, "progressive.jpg"), jpg, jpg, opaque, 31},
		{"JPEG grey", asJPEG(t, grey), jpg, jpg, grey, 35},
		{"JPEG of RGB", fixture(t, "rgb.jpg"), jpg, jpg, opaque, 31},
		{"JPEG of Adobe's CMYK", fixture(t, "cmyk.jpg"), jpg, jpg, opaque, 28},
		{"PNG", asPNG(t, opaque), pngs, pngs, opaque, 100},
		{"PNG with transparency", asPNG(t, alpha), pngs, pngs, alpha, 100},
		{"PNG interlaced", fixture(t, "interlaced.png"), pngs, pngs, alpha, 100},
		{"PNG grey", asPNG(t, grey), pngs, pngs, grey, 100},
		{"PNG grey of 16 bits", asPNG(t, grey16), pngs, pngs, grey, 100},
		{"PNG of 16 bits", asPNG(t, deep), pngs, pngs, opaque, 100},
		{"PNG of 16 bits with transparency", asPNG(t, deepAlpha), pngs, pngs, alpha, 49},
		{"PNG with a palette", asPNG(t, still), pngs, pngs, still, 100},
		{"GIF", asGIF(t, still), gifs, pngs, still, 100},
		{"GIF of several frames", moving, gifs, pngs, still, 100},
		{"GIF whose first frame is a part", offset, gifs, pngs, partOf(still, inner), 100},
		{"WebP lossy", fixture(t, "lossy.webp"), webps, jpg, opaque, 30},
		{"WebP lossless", fixture(t, "lossless.webp"), webps, jpg, opaque, 31},
		{"WebP lossy with transparency", fixture(t, "lossy-alpha.webp"), webps, pngs, alpha, 30},
		{"WebP lossless with transparency", fixture(t, "lossless-alpha.webp"), webps, pngs, alpha,
			100},
		{"WebP animated", fixture(t, "animated.webp"), webps, pngs, alpha, 30},
		{"WebP animated, the first frame a part", fixture(t, "animated-offset.webp"), webps, pngs,
			part, 30},
	}
}

// gifs draws a still GIF, one of three frames and one whose first frame is smaller than the
// picture.
func gifs(t testing.TB, of image.Image) (still *image.Paletted, moving, offset []byte) {
	t.Helper()
	palette := color.Palette{color.NRGBA{}}
	for i := range 255 {
		palette = append(palette, color.NRGBA{uint8(i >> 5 * 36), uint8(i >> 2 & 7 * 36),
			uint8(i & 3 * 85), 0xff})
	}
	still = image.NewPaletted(of.Bounds(), palette)
	draw.Draw(still, still.Rect, of, image.Point{}, draw.Src)
	empty := image.NewPaletted(of.Bounds(), palette)
	encode := func(frames ...*image.Paletted) []byte {
		var b bytes.Buffer
		g := &gif.GIF{Image: frames, Delay: make([]int, len(frames)),
			Config: image.Config{ColorModel: palette, Width: of.Bounds().Dx(),
				Height: of.Bounds().Dy()}}
		if err := gif.EncodeAll(&b, g); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	return still, encode(still, empty, still),
		encode(still.SubImage(image.Rect(20, 10, 80, 60)).(*image.Paletted), still)
}

func asGIF(t testing.TB, img *image.Paletted) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := gif.Encode(&b, img, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func partOf(img image.Image, r image.Rectangle) image.Image {
	m := image.NewNRGBA(img.Bounds())
	draw.Draw(m, r, img, r.Min, draw.Src)
	return m
}

func TestKinds(t *testing.T) {
	t.Parallel()
	for _, k := range kinds(t) {
		t.Run("G-IP-18 "+k.name, func(t *testing.T) {
			t.Parallel()
			info, got := mustRun(t, k.data, 60, 4000)
			if want := (Info{k.mime, 121, 81, int64(len(k.data)), info.Peak}); info != want {
				t.Errorf("got %+v, want %+v", info, want)
			}
			if got[0].MIME != k.out || got[1].MIME != k.out {
				t.Errorf("variants are %s and %s, want %s", got[0].MIME, got[1].MIME, k.out)
			}
			assertNear(t, "the original size", got[1].img, k.want, k.min)
			assertNear(t, "60 pixels", got[0].img, scaled(k.want, 60, 40), min(k.min, 40)-2)
		})
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	tall := image.NewGray(image.Rect(0, 0, 3, 1000))
	for _, c := range []struct {
		name  string
		img   image.Image
		sizes []int
		want  []image.Point
	}{
		{"the longer side is the size", image.NewGray(image.Rect(0, 0, 640, 480)),
			[]int{320, 100, 7, 1}, []image.Point{{1, 1}, {7, 5}, {100, 75}, {320, 240}}},
		{"never enlarged", image.NewGray(image.Rect(0, 0, 30, 20)), []int{29, 30, 31, 8192},
			[]image.Point{{29, 19}, {30, 20}, {30, 20}, {30, 20}}},
		{"doubles are merged", image.NewGray(image.Rect(0, 0, 30, 20)), []int{10, 10, 15, 10},
			[]image.Point{{10, 7}, {15, 10}}},
		{"no side is empty", tall, []int{500, 20, 1}, []image.Point{{1, 1}, {1, 20}, {2, 500}}},
		{"one pixel", image.NewGray(image.Rect(0, 0, 1, 1)), []int{1, 100},
			[]image.Point{{1, 1}, {1, 1}}},
	} {
		t.Run("G-IP-18 "+c.name, func(t *testing.T) {
			t.Parallel()
			for _, original := range [][]byte{asPNG(t, c.img), asJPEG(t, c.img)} {
				_, got := mustRun(t, original, c.sizes...)
				if len(got) != len(c.want) {
					t.Fatalf("%d variants, want %d", len(got), len(c.want))
				}
				for i, v := range got {
					if size := image.Pt(v.Width, v.Height); size != c.want[i] {
						t.Errorf("size %d: %v, want %v", v.Size, size, c.want[i])
					}
				}
			}
		})
	}
}

// TestSameBytes shows that a variant depends on the original and its size alone, so a second
// attempt overwrites an object with what it holds.
func TestSameBytes(t *testing.T) {
	t.Parallel()
	t.Run("IP-037 the same original and size give the same bytes", func(t *testing.T) {
		t.Parallel()
		for _, original := range [][]byte{asJPEG(t, zonePlate(900, 700)),
			asPNG(t, drawing(t, "drawing-alpha.png"))} {
			_, all := mustRun(t, original, 10, 25, 50, 99, 200, 450)
			_, again := mustRun(t, original, 450, 200, 99, 50, 25, 10)
			for i, v := range all {
				_, alone := mustRun(t, original, v.Size)
				if !bytes.Equal(v.data, again[i].data) || !bytes.Equal(v.data, alone[0].data) {
					t.Errorf("size %d differs from run to run", v.Size)
				}
			}
		}
	})
}

func TestTransparency(t *testing.T) {
	t.Parallel()
	// Red where it is seen, green where it is not: no green may come through at the edge.
	img := image.NewNRGBA(image.Rect(0, 0, 400, 400))
	for i := range 400 * 400 {
		c := color.NRGBA{R: 0xff, A: 0xff}
		if x, y := i%400-200, i/400-200; x*x+y*y > 150*150 {
			c = color.NRGBA{G: 0xff}
		}
		img.SetNRGBA(i%400, i/400, c)
	}
	_, got := mustRun(t, asPNG(t, img), 37, 150, 300)
	for _, v := range got {
		seen, clear := 0, 0
		for y := range v.Height {
			for x := range v.Width {
				c := color.NRGBAModel.Convert(v.img.At(x, y)).(color.NRGBA)
				switch {
				case c.A == 0:
					clear++
				case c.A == 0xff:
					seen++
				}
				if c.G > 0 {
					t.Fatalf("size %d: %v at %d, %d", v.Size, c, x, y)
				}
			}
		}
		if area := v.Width * v.Height; seen < area*38/100 || clear < area*50/100 {
			t.Errorf("size %d: %d of %d pixels are opaque, %d clear", v.Size, seen, area, clear)
		}
	}
}

// TestEvenArea shows that neither halving nor the kernel changes an even colour.
func TestEvenArea(t *testing.T) {
	t.Parallel()
	img := image.NewNRGBA(image.Rect(0, 0, 1001, 777))
	draw.Draw(img, img.Rect, image.NewUniform(color.NRGBA{201, 100, 3, 77}), image.Point{},
		draw.Src)
	for _, v := range resultsOf(mustRun(t, asPNG(t, img), 3, 10, 100, 300, 600, 1001)) {
		m := nrgba(v.img)
		for i := 0; i < len(m.Pix); i += 4 {
			if *(*[4]byte)(m.Pix[i:]) != [4]byte{201, 100, 3, 77} {
				t.Fatalf("size %d: %v", v.Size, m.Pix[i:i+4])
			}
		}
	}
}

// TestBrightness shows that many halvings, each of which rounds, make a picture neither brighter
// nor darker.
func TestBrightness(t *testing.T) {
	t.Parallel()
	img := image.NewGray(image.Rect(0, 0, 2048, 2048))
	noise, sum := uint32(1), 0
	for i := range img.Pix {
		noise = noise*1664525 + 1013904223
		img.Pix[i] = byte(noise >> 24)
		sum += int(img.Pix[i])
	}
	want := float64(sum) / float64(len(img.Pix))
	r, err := newRaster(img, img.Rect, image.Point{})
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{256, 128, 64} {
		small := r.fit(size, size, identityOrientation).planes[0].pix
		sum := 0
		for _, v := range small {
			sum += int(v)
		}
		if got := float64(sum) / float64(len(small)); math.Abs(got-want) > 0.15 {
			t.Errorf("size %d: on average %.2f, want %.2f", size, got, want)
		}
	}
}

// TestTaps shows that weights add up to one and lie where the sample does.
func TestTaps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n, cols  int
		to, from float64
	}{{1600, 4000, 1600, 4000}, {61, 241, 60.5, 240.5}, {1, 1, 0.5, 0.5}, {1, 7, 1, 7},
		{300, 100, 300, 100}, {3, 2, 2.5, 1.25}, {1000, 3999, 1000, 3999}} {
		for _, flipped := range []bool{false, true} {
			for i, tap := range tapsFor(c.n, c.to, c.cols, c.from, flipped) {
				sum, at := 0.0, 0.0
				for k, w := range tap.weights {
					sum += float64(w)
					at += float64(w) * (float64(tap.first+k) + 0.5) / (1 << weightBits)
				}
				if sum != 1<<weightBits || tap.first < 0 || tap.first+len(tap.weights) > c.cols {
					t.Fatalf("%+v: sample %d has %+v", c, i, tap)
				}
				want := (float64(i) + 0.5) * c.from / c.to
				if flipped {
					want = c.from - want
				}
				inside := want > 2*c.from/c.to+2 && want < c.from-2*c.from/c.to-2
				if inside && math.Abs(at-want) > 0.03 {
					t.Fatalf("%+v: sample %d is taken at %.2f, want %.2f", c, i, at, want)
				}
			}
		}
	}
}

func resultsOf(_ Info, all []renderedVariant) []renderedVariant { return all }

func TestOrientation(t *testing.T) {
	t.Parallel()
	want := drawing(t, "drawing.png")
	for value := 1; value <= 8; value++ {
		stored := orient(want, value)
		for name, original := range map[string][]byte{
			"JPEG": withExif(asJPEG(t, stored), exifData(value)),
			"PNG":  withChunks(asPNG(t, stored), appendChunk(nil, "eXIf", exifData(value))),
		} {
			t.Run("G-IP-14 orientation "+string(rune('0'+value))+" of a "+name, func(t *testing.T) {
				t.Parallel()
				info, got := mustRun(t, original, 50, 121)
				if info.Width != 121 || info.Height != 81 {
					t.Errorf("the original is %d × %d", info.Width, info.Height)
				}
				// what a JPEG loses; a picture the wrong way up has about 15
				whole, small := 30.0, 28.0
				if name == "PNG" {
					whole, small = 100, 40
				}
				assertNear(t, "the original size", got[1].img, want, whole)
				assertNear(t, "50 pixels", got[0].img, scaled(want, 50, 33), small)
			})
		}
	}
}

// orient stores a picture so that the orientation makes it upright again; the mapping is written
// down from the EXIF standard: which corner of what is seen the stored row and column begin at.
func orient(img *image.NRGBA, value int) *image.NRGBA {
	w, h := img.Rect.Dx(), img.Rect.Dy()
	at := [9]func(x, y int) (int, int){
		1: func(x, y int) (int, int) { return x, y },
		2: func(x, y int) (int, int) { return w - 1 - x, y },
		3: func(x, y int) (int, int) { return w - 1 - x, h - 1 - y },
		4: func(x, y int) (int, int) { return x, h - 1 - y },
		5: func(x, y int) (int, int) { return y, x },
		6: func(x, y int) (int, int) { return w - 1 - y, x },
		7: func(x, y int) (int, int) { return w - 1 - y, h - 1 - x },
		8: func(x, y int) (int, int) { return y, h - 1 - x },
	}[value]
	to := image.NewNRGBA(image.Rect(0, 0, w, h))
	if value >= 5 {
		to = image.NewNRGBA(image.Rect(0, 0, h, w))
	}
	for y := range to.Rect.Dy() {
		for x := range to.Rect.Dx() {
			to.SetNRGBA(x, y, img.NRGBAAt(at(x, y)))
		}
	}
	return to
}
