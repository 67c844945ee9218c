package main

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/jpeg"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/contract/images/picture"
)

const phasePictures = "pictures"

// imageSizes are the variants a picture gets by default.
var imageSizes = []int{1600, 800, 400, 100}

// imageRunner makes the variants of one picture of 12 megapixels again and again, one after
// another, each in processes of its own.
type imageRunner struct {
	dir      string
	original []byte
	make     func(ctx context.Context, original []byte, dir string) (string, error)
	note     string // what the last one said about itself
}

// setupImages is Millrace's way: the binary as the child that the server starts for each picture.
func setupImages(ctx context.Context, env *Env) (Runner, error) {
	r, err := newImageRunner(env, "images-process")
	if err != nil {
		return nil, err
	}
	binary, err := millrace.build(ctx)
	if err != nil {
		return nil, err
	}
	p := &picture.Processor{Command: []string{binary, "picture"},
		Limits: picture.Limits{Pixels: 50_000_000, Memory: picture.DefaultMemory,
			Timeout: picture.DefaultTimeout}}
	r.make = func(ctx context.Context, original []byte, dir string) (string, error) {
		info, _, err := p.Run(ctx, bytes.NewReader(original), imageSizes, dir)
		return fmt.Sprintf("one child a picture, of at most %d MiB", info.Peak>>20), err
	}
	return r, nil
}

// setupVips is libvips' own tool, once for each variant: it makes one at a time.
func setupVips(_ context.Context, env *Env) (Runner, error) {
	tool, err := exec.LookPath("vipsthumbnail")
	if err != nil {
		return nil, skipf("%v (apt-get install libvips-tools)", err)
	}
	r, err := newImageRunner(env, "images-vipsthumbnail")
	if err != nil {
		return nil, err
	}
	version, err := exec.Command(tool, "--vips-version").Output()
	if err != nil {
		return nil, err
	}
	r.make = func(ctx context.Context, original []byte, dir string) (string, error) {
		from := filepath.Join(dir, "original.jpg")
		if err := os.WriteFile(from, original, 0o600); err != nil {
			return "", err
		}
		for _, size := range imageSizes {
			to := filepath.Join(dir, strconv.Itoa(size)+".jpg")
			out, err := exec.CommandContext(ctx, tool, "--size", strconv.Itoa(size), "-o",
				to+"[Q=80,strip]", from).CombinedOutput()
			if err != nil {
				return "", fmt.Errorf("vipsthumbnail: %w: %s", err, singleLine(string(out)))
			}
		}
		return "four processes a picture, " + strings.TrimSpace(string(version)), nil
	}
	return r, nil
}

func newImageRunner(env *Env, name string) (*imageRunner, error) {
	dir, err := env.Folder(name)
	if err != nil {
		return nil, err
	}
	original, err := drawPhotograph(4000, 3000)
	if err != nil {
		return nil, err
	}
	return &imageRunner{dir: dir, original: original}, nil
}

func (r *imageRunner) Durability() string { return "none: files that are removed again; " + r.note }

func (r *imageRunner) Run(ctx context.Context, n int) ([]Phase, error) {
	phase := Phase{Name: phasePictures, Jobs: n}
	for i := range n {
		dir := filepath.Join(r.dir, strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		started := time.Now()
		note, err := r.make(ctx, r.original, dir)
		took := time.Since(started)
		if err != nil {
			return nil, err
		}
		phase.Took += took
		phase.Latency = append(phase.Latency, took)
		r.note = fmt.Sprintf("a JPEG of 12 Mpx and %.1f MB into %v; %s",
			float64(len(r.original))/1e6, imageSizes, note)
		if err := os.RemoveAll(dir); err != nil {
			return nil, err
		}
	}
	return []Phase{phase}, nil
}

func (r *imageRunner) Close() error { return nil }

// drawPhotograph draws a JPEG that is as hard to decode as one of a camera: gradients, edges,
// texture, noise of a sensor; a third of a byte per pixel, 4:2:0.
func drawPhotograph(width, height int) ([]byte, error) {
	img := image.NewYCbCr(image.Rect(0, 0, width, height), image.YCbCrSubsampleRatio420)
	noise := uint32(1)
	grain := func() float64 {
		noise = noise*1664525 + 1013904223
		return float64(noise>>24)/16 - 8
	}
	for y := range height {
		for x := range width {
			v := 40 + 150*float64(x)/float64(width) +
				25*math.Sin(float64(x)*0.31+float64(y)*0.017)*math.Sin(float64(y)*0.23) + grain()
			if (x/97+y/61)%5 == 0 {
				v += 40
			}
			img.Y[img.YOffset(x, y)] = uint8(min(255, max(0, v)))
		}
	}
	for i := range img.Cb {
		img.Cb[i] = uint8(100 + 60*float64(i%img.CStride)/float64(img.CStride) + grain()/4)
		img.Cr[i] = uint8(100 + 60*float64(i)/float64(len(img.Cr)) + grain()/4)
	}
	var b bytes.Buffer
	err := jpeg.Encode(&b, img, &jpeg.Options{Quality: 90})
	return b.Bytes(), err
}
