package demo

import (
	"bytes"
	"image"
	"image/png"
	"testing"

	xdraw "golang.org/x/image/draw"

	"github.com/millrace/millrace/client"
)

// The account of the demo's pictures must be able not to balance.
func TestDemoImages(t *testing.T) {
	t.Parallel()
	pictures, err := drawPictures()
	if err != nil {
		t.Fatal(err)
	}
	small := map[string]map[int][]byte{}
	for _, p := range pictures[:2] {
		small[p.name] = map[int][]byte{}
		for _, size := range variantSizes {
			small[p.name][size] = shrinkImage(t, p.drawn, size)
		}
	}
	for name, corrupt := range map[string]func(photo, badge, broken *uploadedPicture,
		deadLetter *client.ImageDeadLetter){
		"": func(_, _, _ *uploadedPicture, _ *client.ImageDeadLetter) {},
		"another's": func(p, b, _ *uploadedPicture, _ *client.ImageDeadLetter) {
			p.variants, b.variants = b.variants, p.variants
		},
		"torn": func(p, _, _ *uploadedPicture, _ *client.ImageDeadLetter) {
			p.variants[64] = p.variants[64][:100]
		},
		"larger": func(p, _, _ *uploadedPicture, _ *client.ImageDeadLetter) {
			p.variants[64] = p.variants[200]
		},
		"one is missing": func(p, _, _ *uploadedPicture, _ *client.ImageDeadLetter) {
			p.file.Variants = p.file.Variants[1:]
		},
		"opaque": func(_, b, _ *uploadedPicture, _ *client.ImageDeadLetter) {
			fillOpaque(t, b, 200)
		},
		"tried twice": func(p, _, _ *uploadedPicture, _ *client.ImageDeadLetter) {
			p.job.Attempts++
		},
		"not deleted": func(_, b, _ *uploadedPicture, _ *client.ImageDeadLetter) {
			b.statusAfterDelete = client.ImageFileReady
		},
		"content is left": func(_, b, _ *uploadedPicture, _ *client.ImageDeadLetter) {
			b.contentRemained = true
		},
		"deletion failed": func(_, b, _ *uploadedPicture, _ *client.ImageDeadLetter) {
			b.deletion.Status = client.ImageJobFailed
		},
		"text is ready": func(_, _, n *uploadedPicture, _ *client.ImageDeadLetter) {
			n.file.Status = client.ImageFileReady
		},
		"another failure": func(_, _, _ *uploadedPicture, l *client.ImageDeadLetter) {
			l.ErrorType = "worker_lost"
		},
		"another's dead letter": func(p, _, _ *uploadedPicture, l *client.ImageDeadLetter) {
			l.JobID = p.job.ID
		},
		"a stray dead letter": func(_, _, _ *uploadedPicture, l *client.ImageDeadLetter) { l.JobID = "?" },
	} {
		var world []*uploadedPicture
		for _, p := range pictures {
			world = append(world, finishedPicture(t, *p, small[p.name]))
		}
		deadLetter := client.ImageDeadLetter{JobID: "broken.jpg", ErrorType: "decode_error",
			Attempts: 1}
		corrupt(world[0], world[1], world[2], &deadLetter)
		if wrong := auditPictures(world,
			[]client.ImageDeadLetter{deadLetter}); (len(wrong) == 0) != (name == "") {
			t.Errorf("%q: %v", name, wrong)
		}
	}
}

// finishedPicture is a picture of which became what should.
func finishedPicture(t *testing.T, p uploadedPicture, variants map[int][]byte) *uploadedPicture {
	t.Helper()
	p.job = client.ImageJob{ID: p.name, Status: client.ImageJobFailed, Attempts: 1}
	p.file.Status, p.variants = client.ImageFileFailed, map[int][]byte{}
	if p.drawn == nil {
		return &p
	}
	p.job.Status, p.file.Status = client.ImageJobCompleted, client.ImageFileReady
	for _, size := range variantSizes {
		text := variants[size]
		c, err := png.DecodeConfig(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		p.variants[size] = text
		p.file.Variants = append(p.file.Variants,
			client.ImageVariant{Size: size, Width: c.Width, Height: c.Height,
				Bytes: int64(len(text))})
	}
	if p.remove {
		p.deletion.Status, p.statusAfterDelete = client.ImageJobCompleted, client.ImageFileDeleted
	}
	return &p
}

func shrinkImage(t *testing.T, m image.Image, size int) []byte {
	t.Helper()
	wide, high := m.Bounds().Dx(), m.Bounds().Dy()
	if wide > size {
		wide, high = size, (high*size+wide/2)/wide
	}
	to := image.NewNRGBA(image.Rect(0, 0, wide, high))
	xdraw.BiLinear.Scale(to, to.Bounds(), m, m.Bounds(), xdraw.Src, nil)
	return encodeImage(t, to)
}

// fillOpaque makes a variant opaque.
func fillOpaque(t *testing.T, p *uploadedPicture, size int) {
	t.Helper()
	m, err := png.Decode(bytes.NewReader(p.variants[size]))
	if err != nil {
		t.Fatal(err)
	}
	to := image.NewNRGBA(m.Bounds())
	xdraw.Draw(to, to.Bounds(), image.White, image.Point{}, xdraw.Src)
	xdraw.Draw(to, to.Bounds(), m, image.Point{}, xdraw.Over)
	p.variants[size] = encodeImage(t, to)
	for i := range p.file.Variants {
		if v := &p.file.Variants[i]; v.Size == size {
			v.Bytes = int64(len(p.variants[size]))
		}
	}
}

func encodeImage(t *testing.T, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
