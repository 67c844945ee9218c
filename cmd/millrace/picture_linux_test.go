package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"image"
	"image/jpeg"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/contract/images/picture"
)

// TestPicture processes pictures with the real binary as the child, and measures the memory it held
// at most.
func TestPicture(t *testing.T) {
	t.Parallel()
	binary := mustMillrace(t)
	command := slices.Concat([]string{binary}, mustPictureChild(t)[1:])
	limits := picture.Limits{Pixels: 50_000_000, Memory: picture.DefaultMemory,
		Timeout: picture.DefaultTimeout}
	for _, c := range []struct {
		name     string
		original func(t *testing.T) []byte
		max      int64 // MiB
	}{
		{"a JPEG of 12 Mpx in 300 MiB", func(t *testing.T) []byte {
			return texturedJPEG(t, 4000, 3000)
		}, 300},
		{"a PNG of 12 Mpx with transparency in 300 MiB", hugeFixture("12mpx-16bit.png.gz"), 300},
		{"a PNG of 50 Mpx of 16 bits with transparency", hugeFixture("50mpx-16bit.png.gz"),
			1536},
		{"a progressive JPEG of 50 Mpx", hugeFixture("50mpx-progressive.jpg.gz"), 1536},
		{"a progressive CMYK JPEG of 50 Mpx", hugeFixture("50mpx-progressive-cmyk.jpg.gz"), 1536},
	} {
		// one at a time: together they are larger than a small machine
		t.Run(c.name, func(t *testing.T) {
			p := &picture.Processor{Command: command, Limits: limits}
			info, variants, err := p.Run(context.Background(), bytes.NewReader(c.original(t)),
				[]int{100, 400, 800, 1600}, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s of %d × %d: %d MiB", info.MIME, info.Width, info.Height, info.Peak>>20)
			if info.Peak == 0 || info.Peak > c.max<<20 {
				t.Errorf("the child held %d MiB, at most %d are allowed", info.Peak>>20, c.max)
			}
			if len(variants) != 4 || variants[3].Width != 1600 {
				t.Errorf("got %+v", variants)
			}
		})
	}
}

// TestPictureChild shows that the child of a server is the server's own program.
func TestPictureChild(t *testing.T) {
	t.Parallel()
	command := mustPictureChild(t)
	own, err := os.Stat(command[0])
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if named, err := os.Stat(self); err != nil || !os.SameFile(own, named) {
		t.Errorf("%s is not this program (%v)", command[0], err)
	}
}

func mustPictureChild(t *testing.T) []string {
	t.Helper()
	command, err := ownCommand(images.PictureCommand)
	if err != nil {
		t.Fatal(err)
	}
	return command
}

func hugeFixture(name string) func(t *testing.T) []byte {
	return func(t *testing.T) []byte {
		t.Helper()
		f, err := os.Open(filepath.Join("../../internal/contract/images/picture/testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
}

// texturedJPEG is as large a file as a camera makes of so many pixels.
func texturedJPEG(t *testing.T, width, height int) []byte {
	t.Helper()
	img := image.NewYCbCr(image.Rect(0, 0, width, height), image.YCbCrSubsampleRatio420)
	noise := uint32(1)
	for _, plane := range [][]byte{img.Y, img.Cb, img.Cr} {
		for i := range plane {
			noise = noise*1664525 + 1013904223
			plane[i] = byte(100 + i/width%64 + int(noise>>28))
		}
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, &jpeg.Options{Quality: 90}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
