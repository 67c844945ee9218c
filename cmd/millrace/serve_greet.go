package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/console"
	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/docsite"
	"github.com/millrace/millrace/internal/server"
)

// What a started server prints is for two readers. A program that has started it reads one line
// with the addresses. A person at a terminal also reads where the data is, which services are open
// to whom, and which command to try; in a log these are attributes of one message.

// printGreeting announces that the server listens. Standard output gets one line with the
// addresses, which a program that started the server reads. The services and whom they are open to
// follow on a terminal, and is one line of the log where the log is not on that terminal as well.
// Among it is the link to the console, which is good for one login.
func (d *deps) printGreeting(ctx context.Context, urls []string, workersOnly bool) {
	fmt.Fprintf(d.process.Stdout, "millrace %s%s%s\n", cli.ReadBuildInfo().Version, cli.ListeningOn,
		strings.Join(urls, " and "))
	attrs := append(d.dataAttrs(), d.serviceAttrs(workersOnly)...)
	if !workersOnly {
		attrs = append(attrs, server.Attr{Name: "docs", Text: urls[0] + docsite.Path})
	}
	if link := d.consoleLink(ctx, urls[0]); link != "" {
		attrs = append(attrs, server.Attr{Name: "console", Text: link})
	}
	onTerminal := cli.IsTerminal(d.process.Stdout)
	if onTerminal {
		fmt.Fprintln(d.process.Stdout, formatAttrs(attrs, d.exampleCommands(urls[0], workersOnly)))
	}
	if onTerminal && cli.IsTerminal(d.process.Stderr) {
		return
	}
	args := []any{"version", cli.ReadBuildInfo().Version, "node", d.node, "address",
		strings.Join(urls, ",")}
	for _, f := range attrs {
		args = append(args, f.Name, f.Text)
	}
	d.log.Info("started", args...)
}

// dataAttrs names where the data is stored. The URL of a PostgreSQL is shown without its password.
func (d *deps) dataAttrs() []server.Attr {
	s := d.settings
	dir, err := filepath.Abs(s.DataDir)
	if err != nil {
		dir = s.DataDir
	}
	store := s.Store.String()
	if !databaseOf(s).shared {
		store += " (" + filepath.Join(dir, filepath.Base(databaseFile(s))) + ")"
	}
	return []server.Attr{{Name: "data", Text: dir}, {Name: "store", Text: store}}
}

// serviceAttrs names the services, and those that are open without a token.
func (d *deps) serviceAttrs(workersOnly bool) []server.Attr {
	if workersOnly {
		return []server.Attr{{Name: "serves", Text: "health and metrics alone; it runs jobs"}}
	}
	return []server.Attr{{Name: "serves", Text: strings.Join(d.settings.Contracts, ", ")},
		{Name: "open", Text: d.openAccess()}}
}

// page is the page at "/". It shows what the greeting shows, except where the data are: strangers
// may read it. Its commands name the URL by which it was requested.
func (d *deps) page(workersOnly bool) *server.Page {
	page := &server.Page{Attrs: d.serviceAttrs(workersOnly), Commands: func(url string) []string {
		return d.exampleCommands(url, workersOnly)
	}}
	if d.settings.ServesOperators() {
		page.Console = console.Path
	}
	return page
}

// openAccess names what can be used without a token: contracts, the worker API and single paths.
func (d *deps) openAccess() string {
	s := d.settings
	open := s.OpenContracts()
	if s.ServesWorkers() && s.Worker.Token.Empty() {
		open = append(open, "/worker")
	}
	var paths []string
	for _, c := range d.contracts {
		paths = append(paths, c.Open...)
	}
	slices.Sort(paths)
	open = append(open, paths...)
	if len(open) == 0 {
		return "nothing without a token, but health, metrics and openapi"
	}
	text := "without a token: " + strings.Join(open, ", ")
	if s.OnLoopback() {
		text += " (to this machine alone)"
	}
	return text
}

// exampleCommands are commands to try next: with Relay, where it is open to all, else with
// ForgeRun. They name the server only if its address is not the one that commands use by default.
func (d *deps) exampleCommands(url string, workersOnly bool) []string {
	at := ""
	if url != cli.DefaultServer {
		at = " --server " + url
	}
	s := d.settings
	switch {
	case workersOnly:
		return []string{"curl " + url + "/health/ready"}
	case slices.Contains(s.OpenContracts(), relay.Name):
		return []string{`echo '{"to":"a@example.com"}' | millrace enqueue` + at +
			" --queue mail --timeout 30s",
			"millrace work" + at + " mail -- cat"}
	case s.Serves(forgerun.Name):
		return []string{"millrace simulate" + at + " --duration 10s"}
	}
	return []string{"millrace --help"}
}

// formatAttrs lays attributes and commands out in two columns.
func formatAttrs(attrs []server.Attr, commands []string) string {
	var b strings.Builder
	row := func(name, text string) { fmt.Fprintf(&b, "\n  %-7s %s", name, text) }
	for _, f := range attrs {
		row(f.Name, f.Text)
	}
	name := "try"
	for _, command := range commands {
		row(name, command)
		name = ""
	}
	row("stop", "Ctrl-C")
	return b.String() + "\n"
}
