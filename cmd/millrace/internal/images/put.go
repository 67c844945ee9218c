// Package images uploads pictures to Images and downloads their variants.
//
// A few pictures are under way at a time. For each the command uploads the file, waits for its job,
// reads the variants that were made and saves them. A picture that is refused or fails does not
// keep the others from being uploaded; an error that every picture would meet ends the command.
package images

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/clock"
)

// Command is `millrace images`.
func Command(p cli.Process) *cobra.Command {
	c := cli.Group("images", "Upload pictures to Images")
	c.AddCommand(putCommand(p))
	return c
}

// flags are the flags of `millrace images put`. They do not change once the command runs, so that
// the goroutines of putAll share them.
type flags struct {
	remote cli.RemoteFlags
	// sizes are the sizes as they were given.
	sizes string
	// user is recorded with the pictures; empty for none.
	user string
	// callbackURL is notified of the end of each picture's job; empty for nobody.
	callbackURL string
	// out is the folder for the variants; empty to leave them at the server.
	out string
	// wait says to wait for the variants.
	wait   bool
	asJSON bool

	// sizeList are the sizes, decoded; empty for those of the server's settings.
	sizeList []int
}

// putCommand is `millrace images put`.
func putCommand(p cli.Process) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "put FILE...",
		Short: "Upload pictures and wait for their variants",
		Long: `Upload pictures to Images: JPEG, PNG, GIF or WebP, by the extensions of their names. Then
wait until their variants are made, and with --out save these as NAME-SIZE.jpg or .png.
Two pictures that differ in folder or extension only cannot be saved together.
At the end a table shows each variant, or with --json there is a line of JSON for
each picture:

  exit code 0    every picture is ready; with --wait=false, every picture is uploaded
            1    a picture was refused, failed, or could not be saved
            2    a file cannot be read; nothing was uploaded
            3    the folder of --out cannot be made
            4    the server cannot be reached
            5    the server refuses the token
            130  interrupted; pictures that were uploaded are still processed`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageError("nothing to upload: name pictures")
			}
			if f.out != "" && !f.wait {
				return cli.UsageError("--out saves what --wait waits for")
			}
			var err error
			if f.sizeList, err = readSizes(f.sizes); err != nil {
				return err
			}
			return f.run(p, args)
		},
	}
	f.remote.Register(c)
	c.Flags().StringVar(&f.sizes, "sizes", "",
		"longer sides of the variants in pixels, such as 100,400 (default those of the server's settings)")
	c.Flags().StringVar(&f.user, "user", "", "user id that is recorded with the pictures")
	c.Flags().StringVar(&f.callbackURL, "callback-url", "",
		"the `URL` that is notified of the end of each picture's job")
	c.Flags().StringVar(&f.out, "out", "", "`folder` to save the variants in")
	c.Flags().BoolVar(&f.wait, "wait", true, "wait for the variants")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print a line of JSON for each picture")
	return c
}

// readSizes reads sizes such as "100,400"; an empty text has none. Which sizes are allowed is
// checked by the server.
func readSizes(text string) (sizes []int, err error) {
	if text == "" {
		return nil, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil {
			return nil, cli.UsageError("--sizes are whole numbers, such as 100,400, and %q is not",
				word)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// upload is a picture that is uploaded, and its outcome. It is also a line of --json. One goroutine
// of putAll fills it, and the report reads it afterwards.
type upload struct {
	// Path is the path as it was given.
	Path string `json:"path"`
	// ImageFile is the picture as the server has it; the zero value if it was refused.
	client.ImageFile
	// Saved are the paths of the variants, in their order.
	Saved     []string `json:"saved,omitempty"`
	Error     string   `json:"error,omitempty"`
	ErrorType string   `json:"error_type,omitempty"`
}

// run uploads the pictures at the paths and reports their outcomes. An error that ends the command
// early leaves no report: it names the pictures that were uploaded by then, as their jobs go on.
func (f *flags) run(p cli.Process, paths []string) error {
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	if err := f.validate(paths); err != nil {
		return err
	}
	c, err := f.remote.Client(p, nil)
	if err != nil {
		return err
	}
	pictures := make([]*upload, len(paths))
	for i, path := range paths {
		pictures[i] = &upload{Path: path}
	}
	if err := f.putAll(ctx, p, c.Images(), pictures); err != nil {
		f.printUploaded(p.Stderr, pictures)
		return cli.RemoteError(ctx, err)
	}
	return f.report(p, pictures)
}

// validate checks what can be checked before anything is uploaded, and makes the folder of --out.
// Variants are named after the file without its folder and extension, so two pictures with one such
// name would overwrite each other's: with --out that is a usage error.
func (f *flags) validate(paths []string) error {
	stems := map[string]string{}
	for _, path := range paths {
		if err := checkPicture(path); err != nil {
			return err
		}
		if other, duplicate := stems[baseName(path)]; duplicate && f.out != "" {
			return cli.UsageError(
				"--out would save the variants of %s and of %s under the same names", other, path)
		}
		stems[baseName(path)] = path
	}
	if f.out == "" {
		return nil
	}
	return cli.WithCode(cli.ExitUnable, os.MkdirAll(f.out, 0o777))
}

// checkPicture refuses a path that is not a regular file. What the file holds is checked by the
// server.
func checkPicture(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return cli.WithCode(cli.ExitUsage, err)
	case info.IsDir():
		return cli.UsageError("%s is a folder: name the pictures in it, such as %s", path,
			filepath.Join(path, "*.jpg"))
	case !info.Mode().IsRegular():
		return cli.WithCode(cli.ExitUsage, &fs.PathError{Op: "read", Path: path,
			Err: errors.New("not a regular file")})
	}
	return nil
}

// baseName is a file's name without folder and extension. The names of its variants begin with it;
// they have the extensions of the variants, which may be other ones.
func baseName(path string) string {
	base := filepath.Base(path)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// maxUploads is how many pictures are under way at a time. Each has one request under way, so it
// also bounds the connections of the command.
const maxUploads = 8

// putAll uploads the pictures. The error of one picture is recorded in it, and the others go on. An
// error that all of them would meet ends putAll, which returns it:
//
//	pictures ──▶ next ──▶ up to maxUploads goroutines: put ──▶ upload.fail, or cancel of all
//
// Once the context has ended, put returns at once: the channel is emptied without further requests.
func (f *flags) putAll(ctx context.Context, p cli.Process, images *client.Images,
	pictures []*upload) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	bar := p.NewProgress("images", int64(len(pictures)))
	defer bar.End()
	next := make(chan *upload)
	var all sync.WaitGroup
	for range min(maxUploads, len(pictures)) {
		all.Go(func() {
			for picture := range next {
				if err := f.put(ctx, images, picture, bar); isFatal(err) {
					cancel(err)
				} else if err != nil {
					picture.fail(err)
				}
				if ctx.Err() == nil {
					picture.report(bar)
				}
			}
		})
	}
	for _, picture := range pictures {
		next <- picture
	}
	close(next)
	all.Wait()
	return context.Cause(ctx)
}

// isFatal reports whether every other picture would meet the error as well: a refused token, a
// server that stays unavailable although the client has retried or is another one, or a certificate
// that is not trusted.
func isFatal(err error) bool {
	return errors.Is(err, client.ErrUnauthorized) || errors.Is(err, client.ErrRetryable) ||
		errors.Is(err, client.ErrNotMillrace) || cli.CertificateRejected(err)
}

// put uploads one picture and, with --wait, waits for its variants and saves them. The id of the
// picture is recorded as soon as the server has acknowledged it, so that the report names it also
// after a later error. A failed job is no error of put; it is recorded in the picture.
func (f *flags) put(ctx context.Context, images *client.Images, picture *upload,
	bar *cli.Progress) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	file, err := os.Open(picture.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	receipt, err := images.Upload(ctx, client.ImageUpload{Body: file, Name: picture.Path,
		Sizes: f.sizeList, UserID: f.user, CallbackURL: f.callbackURL})
	if err != nil {
		return err
	}
	picture.ID, picture.JobID, picture.Status = receipt.FileID, receipt.JobID,
		client.ImageFileProcessing
	if !f.wait {
		return nil
	}
	job, err := waitJob(ctx, images, picture, bar)
	if err != nil {
		return err
	}
	if picture.ImageFile, err = images.File(ctx, receipt.FileID); err != nil {
		return err
	}
	if job.Status == client.ImageJobFailed {
		picture.Error, picture.ErrorType = job.LastError, job.LastErrorType
	}
	return f.save(ctx, images, picture)
}

// The pause between two readings of a job grows by half each time, from the first to the second.
const (
	minPollInterval = 50 * time.Millisecond
	maxPollInterval = 2 * time.Second
)

// waitJob reads the job of a picture until it has ended, and shows what it waits for. It goes on
// while the server is unavailable.
func waitJob(ctx context.Context, images *client.Images, picture *upload,
	bar *cli.Progress) (client.ImageJob, error) {
	for pause := minPollInterval; ; pause = min(pause*3/2, maxPollInterval) {
		job, err := images.Job(ctx, picture.JobID)
		switch {
		case errors.Is(err, client.ErrRetryable):
			bar.Add(0, "the server is unavailable")
		case err != nil || job.Status.Final():
			return job, err
		default:
			bar.Add(0, filepath.Base(cli.Printable(picture.Path))+" is "+jobNote(job))
		}
		if !clock.Sleep(ctx, pause) {
			return job, ctx.Err()
		}
	}
}

// jobNote says what a job that has not ended is doing.
func jobNote(job client.ImageJob) string {
	switch {
	case job.Status == client.ImageJobQueued && job.Attempts == 0:
		return string(job.Status) + ", no worker has taken it yet"
	case job.Status == client.ImageJobRetryable:
		return fmt.Sprintf("%s, after %d of %s: %s", job.Status, job.Attempts,
			cli.Pluralize(int64(job.MaxAttempts), "attempt"), cli.Printable(job.LastError))
	}
	return string(job.Status)
}

// save downloads the variants of a picture to the folder of --out, if there is one. It stops at the
// first that fails; those before it stay and are recorded.
func (f *flags) save(ctx context.Context, images *client.Images, picture *upload) error {
	if f.out == "" {
		return nil
	}
	for _, v := range picture.Variants {
		path := filepath.Join(f.out, fmt.Sprintf("%s-%d%s", baseName(picture.Path), v.Size,
			filepath.Ext(v.Key)))
		if err := saveVariant(ctx, images, picture.ID, v.Size, path); err != nil {
			return err
		}
		picture.Saved = append(picture.Saved, path)
	}
	return nil
}

// saveVariant downloads a variant. After a crash its file is complete or absent: the bytes go to a
// temporary file beside it, which takes its name at the end. An older file of that name is
// replaced.
func saveVariant(ctx context.Context, images *client.Images, fileID string, size int,
	path string) error {
	body, err := images.Variant(ctx, fileID, size)
	if err != nil {
		return err
	}
	defer body.Close()
	file, err := os.CreateTemp(filepath.Dir(path), ".millrace-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(file, body)
	return cli.MoveInPlace(file.Name(), path, errors.Join(err, file.Chmod(0o644), file.Close()))
}

// fail records why a picture could not be uploaded or saved: the server's message and code, where
// it has refused.
func (p *upload) fail(err error) {
	p.Error = err.Error()
	var refused *client.Error
	if errors.As(err, &refused) {
		p.Error, p.ErrorType = cmp.Or(refused.Message, p.Error), refused.Code
	}
}

// status is the status of the picture at the server, or "refused".
func (p *upload) status() string {
	if p.ID == "" {
		return "refused"
	}
	return string(p.Status)
}

// report counts a picture in the progress. It writes a line for it where there is no bar, or where
// the picture has an error.
func (p *upload) report(bar *cli.Progress) {
	text := cli.Printable(p.Path) + ": " + p.status()
	if p.Error != "" {
		text += ", " + strings.TrimPrefix(p.ErrorType+": ", ": ") + cli.Printable(p.Error)
	} else if len(p.Variants) > 0 {
		text += ", " + cli.Pluralize(int64(len(p.Variants)), "variant")
	}
	if !bar.HasBar() || p.Error != "" {
		bar.Printf("%s", text)
	}
	bar.Add(1, filepath.Base(cli.Printable(p.Path)))
}

// printUploaded prints which pictures were uploaded before the command ended early.
func (f *flags) printUploaded(w io.Writer, pictures []*upload) {
	for _, p := range pictures {
		if p.ID != "" {
			fmt.Fprintf(w, "uploaded: %s is %s\n", cli.Printable(p.Path), p.ID)
		}
	}
}

// report prints the outcomes and returns an error if a picture has one or, with --wait, is not
// ready.
func (f *flags) report(p cli.Process, pictures []*upload) error {
	bad := 0
	for _, picture := range pictures {
		if picture.Error != "" || (f.wait && picture.Status != client.ImageFileReady) {
			bad++
		}
	}
	err := f.write(p, pictures)
	if err != nil {
		return cli.FailedError("%w", err)
	}
	if bad > 0 {
		return cli.FailedError("%d of %s failed", bad,
			cli.Pluralize(int64(len(pictures)), "picture"))
	}
	return nil
}

// write prints a line for each variant, or with --json one for each picture. URLs are absolute, as
// the server's are paths.
func (f *flags) write(p cli.Process, pictures []*upload) error {
	at := strings.TrimRight(f.remote.Address(p), "/")
	if f.asJSON {
		lines := json.NewEncoder(p.Stdout)
		for _, picture := range pictures {
			for i := range picture.Variants {
				picture.Variants[i].URL = at + picture.Variants[i].URL
			}
			if err := lines.Encode(picture); err != nil {
				return err
			}
		}
		return nil
	}
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FILE\tSTATUS\tSIZE\tPIXELS\tBYTES\tURL")
	for _, picture := range pictures {
		name, url := cli.Printable(picture.Path), "-"
		if picture.ID != "" {
			url = at + "/images/v1/files/" + picture.ID
		}
		if len(picture.Variants) == 0 {
			fmt.Fprintf(table, "%s\t%s\t-\t-\t-\t%s\n", name, picture.status(), url)
		}
		for _, v := range picture.Variants {
			fmt.Fprintf(table, "%s\t%s\t%d\t%d×%d\t%d\t%s\n", name, picture.status(), v.Size,
				v.Width, v.Height, v.Bytes, at+v.URL)
		}
	}
	return table.Flush()
}
