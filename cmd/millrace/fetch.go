package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

type fetchFlags struct {
	remote   cli.RemoteFlags
	operator string
	jobType  string
	tenant   string
	key      string
	urls     []string
	jobs     []string
	asJSON   bool
}

func fetchCommand(p cli.Process) *cobra.Command {
	var f fetchFlags
	c := &cobra.Command{
		Use:   "fetch [MANIFEST | -]...",
		Short: "Have FetchBox download manifests, and follow them to their end",
		Long: `Submit manifests to FetchBox and follow their jobs until all downloads are settled.
A manifest is a JSON file, or standard input for -:

  {"manifest_version": "v1", "metadata": {},
   "resources": [{"id": "logo", "url": "https://example.org/logo.png"}]}

--url makes a manifest of plain URLs. All manifests are read before the first is
submitted. At the end a table tells of each job and a second one of each download
that failed, or with --json a line of JSON of each job:

  exit code 0    every job is completed
            1    a job failed, or a manifest was refused
            4    the server cannot be reached, or refuses the token
            130  interrupted; the jobs go on, and --job follows them again

--job follows jobs that were submitted before; nothing is submitted twice.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args)+len(f.urls)+len(f.jobs) == 0 {
				return cli.UsageError(
					"nothing to fetch: name manifests, URLs with --url, or jobs with --job")
			}
			if f.key != "" && len(args)+min(len(f.urls), 1) != 1 {
				return cli.UsageError("--key is that of one manifest")
			}
			return f.run(p, args)
		},
	}
	f.remote.Register(c)
	c.Flags().StringVar(&f.operator, "operator-token", "",
		"token of the operator, who sees jobs (MILLRACE_OPERATOR_TOKEN, else that of the contract)")
	c.Flags().StringVar(&f.jobType, "type", "default",
		"job type, which is registered in the server's settings")
	c.Flags().StringVar(&f.tenant, "tenant", "", "tenant that is recorded with the jobs")
	c.Flags().StringVar(&f.key, "key", "",
		"idempotency key: a manifest that was submitted under it is not fetched again")
	c.Flags().StringArrayVar(&f.urls, "url", nil, "a URL to fetch; may be repeated")
	c.Flags().StringArrayVar(&f.jobs, "job", nil, "id of a job to follow; may be repeated")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print a line of JSON for each job")
	return c
}

// fetchedJob is a job that is followed, and what it was submitted as.
type fetchedJob struct {
	Manifest string `json:"manifest,omitempty"`
	client.FetchBoxJob
	urls map[string]string // of its resources, where it is known to have this manifest
}

// title is what the user knows the job by.
func (j *fetchedJob) title() string { return cmp.Or(j.Manifest, j.ID) }

func (f *fetchFlags) run(p cli.Process, names []string) error {
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	titles, manifests, err := f.manifests(ctx, p, names)
	if ctx.Err() != nil {
		return cli.ErrInterrupted
	}
	if err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	c, err := f.remote.Client(p, nil)
	if err != nil {
		return err
	}
	box := c.FetchBox()
	if token := cmp.Or(f.operator, p.Env(cli.EnvOperatorToken)); token != "" {
		box = box.WithOperatorToken(token)
	}
	jobs, err := f.submit(ctx, p, box, titles, manifests)
	if err != nil {
		return err
	}
	if err := follow(ctx, p, box, jobs); err != nil {
		// what --job names and nobody has seen may not be there
		if cli.ExitCode(err) != cli.ExitInterrupted {
			jobs = slices.DeleteFunc(jobs, func(j *fetchedJob) bool { return j.Status == "" })
		}
		printJobs(p.Stderr, "the jobs go on; to follow them", jobs)
		return err
	}
	if err := f.report(p.Stdout, jobs); err != nil {
		return err
	}
	return f.failedJobsError(ctx, p, box, jobs)
}

// submit submits the manifests and returns their jobs, behind those that are only followed.
func (f *fetchFlags) submit(ctx context.Context, p cli.Process, box *client.FetchBox,
	titles []string, manifests []json.RawMessage) ([]*fetchedJob, error) {
	var jobs []*fetchedJob
	for _, id := range f.jobs {
		jobs = append(jobs, &fetchedJob{FetchBoxJob: client.FetchBoxJob{ID: id}})
	}
	if len(manifests) == 0 {
		return jobs, nil
	}
	shown := p.NewProgress("submit", int64(len(manifests)))
	defer shown.End()
	for i, manifest := range manifests {
		receipt, err := box.Submit(ctx, client.FetchBoxSpec{Type: f.jobType, Tenant: f.tenant,
			IdempotencyKey: f.key, Manifest: manifest})
		if err != nil {
			shown.End()
			printJobs(p.Stderr, "submitted so far", jobs)
			err = cli.RemoteError(ctx, err)
			return nil, cli.WithCode(cli.ExitCode(err), fmt.Errorf("%s: %w", titles[i], err))
		}
		j := &fetchedJob{Manifest: titles[i],
			FetchBoxJob: client.FetchBoxJob{ID: receipt.JobID, Status: client.FetchQueued,
				Total: receipt.Resources}}
		if f.key == "" { // else it may be the job of another one
			j.urls = urlsOf(manifest)
		}
		jobs = append(jobs, j)
		shown.Add(1, cli.Pluralize(int64(i+1), "manifest")+" submitted")
	}
	return jobs, nil
}

// manifests reads the documents to submit, and makes one of the URLs.
func (f *fetchFlags) manifests(ctx context.Context, p cli.Process, names []string) (
	titles []string, manifests []json.RawMessage, err error) {
	for _, name := range names {
		text, err := readDocument(ctx, p, name)
		if err != nil {
			return nil, nil, fmt.Errorf("manifest %s: %w", name, err)
		}
		if !json.Valid(text) {
			return nil, nil, fmt.Errorf("manifest %s: it is not JSON", name)
		}
		titles, manifests = append(titles, cli.Printable(name)), append(manifests, text)
	}
	if len(f.urls) == 0 {
		return titles, manifests, nil
	}
	text, err := manifestOf(f.urls)
	return append(titles, cli.Pluralize(int64(len(f.urls)), "URL")), append(manifests, text), err
}

// manifestOf makes a manifest of plain URLs. Their ids begin with a number, as two URLs may end the
// same.
func manifestOf(urls []string) (json.RawMessage, error) {
	var m client.FetchBoxManifest
	for i, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			return nil, err
		}
		id := fmt.Sprintf("%03d", i+1)
		if base := path.Base(u.Path); strings.Trim(base, "./") != "" {
			id += "-" + base
		}
		if name := []rune(id); len(name) > 128 {
			id = string(name[:128])
		}
		m.Resources = append(m.Resources, client.FetchBoxResource{ID: id, URL: text})
	}
	return m.Encode()
}

// printJobs says how jobs that were submitted are followed.
func printJobs(w io.Writer, what string, jobs []*fetchedJob) {
	if len(jobs) == 0 {
		return
	}
	fmt.Fprintf(w, "%s: millrace fetch", what)
	for _, j := range jobs {
		fmt.Fprintf(w, " --job %s", j.ID)
	}
	fmt.Fprintln(w)
}

// checkReport tells how the jobs ended.
func (f *fetchFlags) report(w io.Writer, jobs []*fetchedJob) error {
	write := writeFetched
	if f.asJSON {
		write = func(w io.Writer, jobs []*fetchedJob) (err error) {
			lines := json.NewEncoder(w)
			for _, j := range jobs {
				err = errors.Join(err, lines.Encode(j))
			}
			return err
		}
	}
	if err := write(w, jobs); err != nil {
		return cli.FailedError("%w", err)
	}
	return nil
}

// verdict fails if a job did, and tells which downloads failed.
func (f *fetchFlags) failedJobsError(ctx context.Context, p cli.Process, box *client.FetchBox,
	jobs []*fetchedJob) error {
	bad := 0
	for _, j := range jobs {
		if j.Status != client.FetchCompleted {
			bad++
		}
	}
	if bad == 0 {
		return nil
	}
	if !f.asJSON {
		printFailures(ctx, p, box, jobs)
	}
	return cli.FailedError("%d of %s did not complete", bad, cli.Pluralize(int64(len(jobs)), "job"))
}

func writeFetched(w io.Writer, jobs []*fetchedJob) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "JOB\tMANIFEST\tSTATUS\tDONE\tFAILED\tLAST ERROR")
	for _, j := range jobs {
		last := "-"
		if e := j.LastError; e != nil {
			last = e.Code + ": " + cli.Printable(e.Message)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d of %d\t%d\t%s\n", j.ID, cmp.Or(j.Manifest, "-"),
			j.Status, j.Completed, j.Total, j.Failed, last)
	}
	return table.Flush()
}
