// Package fetch has FetchBox download manifests and follows their jobs.
//
//	read      all manifests, before the first is submitted
//	submit    one job for each manifest
//	follow    ask for each open job every pollInterval, until all have ended (follow.go)
//	report    a table or JSON lines of the jobs, and why downloads failed (failures.go)
//
// Jobs go on at the server whatever happens to the command. When it ends early it therefore prints
// the command line that follows the same jobs again (printJobs).
package fetch

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

// flags are the flags of the command.
type flags struct {
	remote cli.RemoteFlags
	// operator is the token of the operator, who may read jobs; empty for that of the environment.
	operator string
	// jobType is the type of the jobs that are submitted.
	jobType string
	// tenant is recorded with the jobs that are submitted; empty for none.
	tenant string
	// callbackURL is notified of the end of each job that is submitted; empty for nobody.
	callbackURL string
	// key is the idempotency key of the one manifest; empty for none.
	key string
	// urls are URLs that become one more manifest.
	urls []string
	// jobs are the ids of jobs to follow besides those that are submitted.
	jobs   []string
	asJSON bool
}

// Command is `millrace fetch`.
func Command(p cli.Process) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "fetch [MANIFEST | -]...",
		Short: "Have FetchBox download manifests, and follow them to their end",
		Long: `Submit manifests to FetchBox and follow their jobs until all downloads have ended.
A manifest is a JSON file, or standard input for -:

  {"manifest_version": "v1", "metadata": {},
   "resources": [{"id": "logo", "url": "https://example.org/logo.png"}]}

--url makes a manifest of plain URLs. All manifests are read before the first is
submitted. At the end a table shows each job and a second one each download that
failed, or with --json there is a line of JSON for each job:

  exit code 0    every job is completed
            1    a job failed, or a manifest was refused
            4    the server cannot be reached
            5    the server refuses the token
            130  interrupted; the jobs go on, and --job follows them again

--job follows jobs that were submitted before; nothing is submitted twice.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args)+len(f.urls)+len(f.jobs) == 0 {
				return cli.UsageError(
					"nothing to fetch: name manifests, URLs with --url, or jobs with --job")
			}
			if f.key != "" && len(args)+min(len(f.urls), 1) != 1 {
				return cli.UsageError("--key is the key of exactly one manifest")
			}
			return f.run(p, args)
		},
	}
	f.register(c)
	return c
}

// register adds the flags to the command.
func (f *flags) register(c *cobra.Command) {
	f.remote.Register(c)
	c.Flags().StringVar(&f.operator, "operator-token", "",
		"token that reads jobs (MILLRACE_OPERATOR_TOKEN, else the token of the contract)")
	c.Flags().StringVar(&f.jobType, "type", "default",
		"job type, which is registered in the server's settings")
	c.Flags().StringVar(&f.tenant, "tenant", "", "tenant that is recorded with the jobs")
	c.Flags().StringVar(&f.callbackURL, "callback-url", "",
		"the `URL` that is notified of the end of each job that is submitted")
	c.Flags().StringVar(&f.key, "key", "",
		"idempotency key: a manifest that was submitted under it is not fetched again")
	c.Flags().StringArrayVar(&f.urls, "url", nil, "a URL to fetch; may be repeated")
	c.Flags().StringArrayVar(&f.jobs, "job", nil, "id of a job to follow; may be repeated")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print a line of JSON for each job")
}

// followedJob is a job that is followed, and the manifest that it was submitted with. It is also a
// line of --json.
type followedJob struct {
	// Manifest is the title of the manifest; empty for a job of --job.
	Manifest string `json:"manifest,omitempty"`
	client.FetchBoxJob
	// urls are the URLs of the resources, by id; nil where the manifest is not known for sure.
	urls map[string]string
}

// title names the job in messages.
func (j *followedJob) title() string { return cmp.Or(j.Manifest, j.ID) }

// run submits the named manifests and those of the flags, follows the jobs and reports how they
// ended.
func (f *flags) run(p cli.Process, names []string) error {
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
		// A job of --job that was never read may not exist.
		if cli.ExitCode(err) != cli.ExitInterrupted {
			jobs = slices.DeleteFunc(jobs, func(j *followedJob) bool { return j.Status == "" })
		}
		printJobs(p.Stderr, "the jobs go on; to follow them", jobs)
		return err
	}
	if err := f.report(p.Stdout, jobs); err != nil {
		return err
	}
	return f.failedJobsError(ctx, p, box, jobs)
}

// submit submits the manifests and returns the jobs to follow: those of --job, then those of the
// manifests. When a manifest is refused, the jobs of those before it go on and are printed. Its
// error names the manifest and keeps the exit code of the refusal.
func (f *flags) submit(ctx context.Context, p cli.Process, box *client.FetchBox,
	titles []string, manifests []json.RawMessage) ([]*followedJob, error) {
	var jobs []*followedJob
	for _, id := range f.jobs {
		jobs = append(jobs, &followedJob{FetchBoxJob: client.FetchBoxJob{ID: id}})
	}
	if len(manifests) == 0 {
		return jobs, nil
	}
	shown := p.NewProgress("submit", int64(len(manifests)))
	defer shown.End()
	for i, manifest := range manifests {
		receipt, err := box.Submit(ctx, client.FetchBoxSpec{Type: f.jobType, Tenant: f.tenant,
			IdempotencyKey: f.key, CallbackURL: f.callbackURL, Manifest: manifest})
		if err != nil {
			shown.End()
			printJobs(p.Stderr, "submitted so far", jobs)
			err = cli.RemoteError(ctx, err)
			return nil, cli.WithCode(cli.ExitCode(err), fmt.Errorf("%s: %w", titles[i], err))
		}
		j := &followedJob{Manifest: titles[i],
			FetchBoxJob: client.FetchBoxJob{ID: receipt.JobID, Status: client.FetchBoxStatusQueued,
				Total: receipt.Resources}}
		if f.key == "" { // with a key it may be the job of an earlier manifest
			j.urls = urlsOf(manifest)
		}
		jobs = append(jobs, j)
		shown.Add(1, cli.Pluralize(int64(i+1), "manifest")+" submitted")
	}
	return jobs, nil
}

// manifests reads the named manifests and makes one more of the URLs. It returns each with the
// title under which its job is printed. A manifest must be JSON; what it says is checked by the
// server.
func (f *flags) manifests(ctx context.Context, p cli.Process, names []string) (
	titles []string, manifests []json.RawMessage, err error) {
	for _, name := range names {
		text, err := cli.ReadDocument(ctx, p, name)
		if err != nil {
			return nil, nil, fmt.Errorf("manifest %s: %w", name, err)
		}
		if !json.Valid(text) {
			return nil, nil, fmt.Errorf("manifest %s: not JSON", name)
		}
		titles, manifests = append(titles, cli.Printable(name)), append(manifests, text)
	}
	if len(f.urls) == 0 {
		return titles, manifests, nil
	}
	text, err := manifestOf(f.urls)
	return append(titles, cli.Pluralize(int64(len(f.urls)), "URL")), append(manifests, text), err
}

// maxResourceID is the longest id of a resource, in characters, by FetchBox's document.
const maxResourceID = 128

// manifestOf makes a manifest of URLs. The id of a resource is its number and the last segment of
// the URL's path; the number keeps URLs apart whose paths end in the same name.
func manifestOf(urls []string) (json.RawMessage, error) {
	var m client.FetchBoxManifest
	for i, text := range urls {
		u, err := url.Parse(text)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return nil, fmt.Errorf("--url: invalid URL %q: must begin with http:// or https://",
				text)
		}
		id := fmt.Sprintf("%03d", i+1)
		if base := path.Base(u.Path); strings.Trim(base, "./") != "" {
			id += "-" + base
		}
		if name := []rune(id); len(name) > maxResourceID {
			id = string(name[:maxResourceID])
		}
		m.Resources = append(m.Resources, client.FetchBoxResource{ID: id, URL: text})
	}
	return m.Encode()
}

// printJobs prints the command that follows the jobs; nothing where there are none.
func printJobs(w io.Writer, what string, jobs []*followedJob) {
	if len(jobs) == 0 {
		return
	}
	fmt.Fprintf(w, "%s: millrace fetch", what)
	for _, j := range jobs {
		fmt.Fprintf(w, " --job %s", j.ID)
	}
	fmt.Fprintln(w)
}

// report prints how the jobs ended, in the order in which they were named or submitted.
func (f *flags) report(w io.Writer, jobs []*followedJob) error {
	write := writeTable
	if f.asJSON {
		write = func(w io.Writer, jobs []*followedJob) (err error) {
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

// failedJobsError returns an error if a job did not complete, and then prints why its downloads
// failed, unless the output is JSON. A job with one failed download is failed as a whole.
func (f *flags) failedJobsError(ctx context.Context, p cli.Process, box *client.FetchBox,
	jobs []*followedJob) error {
	bad := 0
	for _, j := range jobs {
		if j.Status != client.FetchBoxStatusCompleted {
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

// writeTable prints a line for each job.
func writeTable(w io.Writer, jobs []*followedJob) error {
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
