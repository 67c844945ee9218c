package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // decodes variants
	_ "image/png"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// The pictures are drawn by the demo, so it knows which colour each variant must have at which
// point. A variant is decoded with the standard library, which shares no code with the server's
// resampling.

// uploadedPicture is a picture that the demo uploads, and its outcome.
type uploadedPicture struct {
	name string
	data []byte
	// drawn is what data shows; nil for the file that is no picture.
	drawn image.Image
	// remove says that it is deleted in the end.
	remove bool

	// file and job are as the server has them after the job has ended.
	file client.ImageFile
	job  client.ImageJob
	// variants has the variants by size, as they were downloaded.
	variants          map[int][]byte
	deletion          client.ImageJob
	statusAfterDelete client.ImageFileStatus
	// contentRemained says that its content could still be downloaded after the deletion.
	contentRemained bool
}

// variantSizes are the longer sides of the variants; the last is larger than one of the pictures.
var variantSizes = []int{64, 200, 800}

// images shows Images: it uploads two pictures that it has drawn and a file that is no picture,
// waits for the variants and deletes one picture. It reports whether every variant shows what was
// drawn. All are uploaded before the first is waited for, so that they are processed concurrently.
func (d *demo) images(ctx context.Context) (bool, error) {
	pictures, err := drawPictures()
	if err != nil {
		return false, cli.WithCode(cli.ExitFailed, err)
	}
	c, err := client.New(client.Config{BaseURL: d.url})
	if err != nil {
		return false, cli.WithCode(cli.ExitFailed, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stallTimeout, errors.New("it did not end in time"))
	defer cancel()
	images, started := c.Images(), d.p.Elapsed()
	bar := d.p.NewProgress("images", int64(len(pictures)))
	for _, p := range pictures {
		receipt, err := images.Upload(ctx,
			client.ImageUpload{Body: bytes.NewReader(p.data), Name: p.name, Sizes: variantSizes,
				UserID: "demo"})
		if err != nil {
			return false, cli.RemoteError(ctx, err)
		}
		p.job.ID, p.file.ID = receipt.JobID, receipt.FileID
	}
	for _, p := range pictures {
		if err := p.collect(ctx, images); err != nil {
			return false, cli.RemoteError(ctx, err)
		}
		bar.Add(1, p.name)
	}
	bar.End()
	var deadLetters []client.ImageDeadLetter
	for deadLetter, err := range images.DeadLetters(ctx, 0) {
		if err != nil {
			return false, cli.RemoteError(ctx, err)
		}
		deadLetters = append(deadLetters, deadLetter)
	}
	writePictures(d.p.Stdout, pictures, deadLetters, d.p.Elapsed()-started)
	return d.writeProblems(auditPictures(pictures, deadLetters)), nil
}

// collect waits for the job of a picture and downloads its variants. A picture with remove is then
// deleted, and its status and content are read again.
func (p *uploadedPicture) collect(ctx context.Context, images *client.Images) (err error) {
	if p.job, err = images.WaitJob(ctx, p.job.ID); err != nil {
		return err
	}
	if p.file, err = images.File(ctx, p.file.ID); err != nil {
		return err
	}
	p.variants = map[int][]byte{}
	for _, v := range p.file.Variants {
		body, err := images.Variant(ctx, p.file.ID, v.Size)
		if err != nil {
			return err
		}
		p.variants[v.Size], err = io.ReadAll(body)
		if err = errors.Join(err, body.Close()); err != nil {
			return err
		}
	}
	if !p.remove {
		return nil
	}
	id, err := images.Delete(ctx, p.file.ID)
	if err != nil {
		return err
	}
	if p.deletion, err = images.WaitJob(ctx, id); err != nil {
		return err
	}
	file, err := images.File(ctx, p.file.ID)
	if err != nil {
		return err
	}
	p.statusAfterDelete = file.Status
	body, err := images.Content(ctx, p.file.ID)
	if errors.Is(err, client.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	p.contentRemained = true
	return body.Close()
}

// auditPictures compares the outcomes of the pictures with what was drawn, and returns the
// differences. Every dead letter must belong to one of the pictures.
func auditPictures(pictures []*uploadedPicture,
	deadLetters []client.ImageDeadLetter) (wrong []string) {
	dead := map[string]client.ImageDeadLetter{}
	for _, deadLetter := range deadLetters {
		dead[deadLetter.JobID] = deadLetter
	}
	for _, p := range pictures {
		for _, what := range p.audit(dead[p.job.ID]) {
			wrong = append(wrong, p.name+": "+what)
		}
		delete(dead, p.job.ID)
	}
	for _, id := range slices.Sorted(maps.Keys(dead)) {
		wrong = append(wrong, "a dead letter of job "+id)
	}
	return wrong
}

// audit returns the problem of one picture. deadLetter is its dead letter, the zero value for none.
// The file that is no picture must have failed in its first attempt with a decode_error: another
// attempt would not change it. Every picture must have taken one attempt.
func (p *uploadedPicture) audit(deadLetter client.ImageDeadLetter) (wrong []string) {
	addProblem := func(format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf(format, args...))
	}
	if p.job.Attempts != 1 {
		addProblem("it took %d attempts", p.job.Attempts)
	}
	if p.drawn == nil {
		if p.file.Status != client.ImageFileFailed || len(p.variants) > 0 ||
			deadLetter.ErrorType != "decode_error" || deadLetter.Attempts != 1 {
			addProblem("it is %s with %d variants and the dead letter %+v", p.file.Status,
				len(p.variants), deadLetter)
		}
		return wrong
	}
	if p.file.Status != client.ImageFileReady || deadLetter.JobID != "" ||
		len(p.file.Variants) != len(variantSizes) {
		addProblem("it is %s with %d variants: %s", p.file.Status, len(p.file.Variants),
			p.job.LastError)
	}
	for i, v := range p.file.Variants {
		if i < len(variantSizes) && v.Size != variantSizes[i] {
			addProblem("a variant has size %d", v.Size)
		}
		if err := p.compare(v); err != nil {
			addProblem("size %d: %v", v.Size, err)
		}
	}
	if p.remove && (p.deletion.Status != client.ImageJobCompleted ||
		p.statusAfterDelete != client.ImageFileDeleted || p.contentRemained) {
		addProblem("its deletion is %s, the file is %s, its content is there: %t", p.deletion.Status,
			p.statusAfterDelete, p.contentRemained)
	}
	return wrong
}

// compare decodes a variant and checks that it has the announced size and shows what was drawn. A
// variant is never larger than the picture: its longer side is the smaller of both.
func (p *uploadedPicture) compare(v client.ImageVariant) error {
	got, _, err := image.Decode(bytes.NewReader(p.variants[v.Size]))
	if err != nil {
		return err
	}
	if int64(len(p.variants[v.Size])) != v.Bytes {
		return fmt.Errorf("it has %d bytes, not %d", len(p.variants[v.Size]), v.Bytes)
	}
	is, was := got.Bounds(), p.drawn.Bounds()
	if want := min(v.Size, max(was.Dx(), was.Dy())); max(is.Dx(), is.Dy()) != want ||
		is.Dx() != v.Width || is.Dy() != v.Height {
		return fmt.Errorf("it is %d×%d, said to be %d×%d", is.Dx(), is.Dy(), v.Width, v.Height)
	}
	for _, at := range comparedPoints {
		a := got.At(is.Min.X+at[0]*is.Dx()/100, is.Min.Y+at[1]*is.Dy()/100)
		b := p.drawn.At(was.Min.X+at[0]*was.Dx()/100, was.Min.Y+at[1]*was.Dy()/100)
		if difference := colorDistance(a, b); difference > colorTolerance {
			return fmt.Errorf("the colour at %d %%, %d %% is off by %d", at[0], at[1], difference)
		}
	}
	return nil
}

// writePictures prints a line for each picture, for each variant and for each dead letter.
func writePictures(w io.Writer, pictures []*uploadedPicture, deadLetters []client.ImageDeadLetter,
	took time.Duration) {
	fmt.Fprintf(w, "\nImages: a JPEG, a PNG with transparency that is deleted in the end, and a "+
		"text called .jpg\n")
	made := 0
	for _, p := range pictures {
		size, end := "no picture", ""
		if p.drawn != nil {
			size = fmt.Sprintf("%d×%d", p.drawn.Bounds().Dx(), p.drawn.Bounds().Dy())
		}
		if p.statusAfterDelete != "" {
			end = ", now " + string(p.statusAfterDelete)
		}
		fmt.Fprintf(w, "  %-12s %-10s %7d bytes  %s%s\n", p.name, size, len(p.data), p.file.Status,
			end)
		for _, v := range p.file.Variants {
			fmt.Fprintf(w, "  %12d %-10s %7d bytes\n", v.Size,
				fmt.Sprintf("%d×%d", v.Width, v.Height), v.Bytes)
		}
		made += len(p.variants)
	}
	for _, deadLetter := range deadLetters {
		fmt.Fprintf(w, "  dead letter %s: %s after %s: %s\n", deadLetter.JobID, deadLetter.ErrorType,
			cli.Pluralize(int64(deadLetter.Attempts), "attempt"), cli.Printable(deadLetter.Error))
	}
	fmt.Fprintf(w, "\n%d pictures in %s; %d variants decoded and compared with what was drawn\n",
		len(pictures), cli.FormatDuration(took), made)
}
