package main

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/telemetry"
)

// The page docs/reference/metrics.md has every metric of a node with all contracts, on both
// databases.
func TestReferenceMetrics(t *testing.T) {
	t.Parallel()
	local := metricsOf(t, "sqlite")
	all := local
	for _, m := range metricsOf(t, pgtest.URL(t)) {
		isSame := func(o metric) bool { return o.name == m.name && o.of == m.of }
		if !slices.ContainsFunc(local, isSame) {
			m.postgres = true
			all = append(all, m)
		}
	}
	p := &page{}
	p.line(`# Metrics

Every metric of a node with all contracts, made from the code. %[1]s/metrics%[1]s has all of them with the
label %[1]scontract%[1]s, and %[1]scomponent%[1]s where it is named; %[1]s/metrics/CONTRACT%[1]s (and
%[1]s/metrics/CONTRACT/COMPONENT%[1]s) has those of one part. A histogram has the series %[1]s_bucket%[1]s,
%[1]s_sum%[1]s and %[1]s_count%[1]s. What Go and the operating system say of the process (%[1]sgo_…%[1]s,
%[1]sprocess_…%[1]s) is left out here. [Operating](../operating.md#what-to-watch) says which to watch.`, "`")
	var parts []string
	for _, m := range all {
		if !slices.Contains(parts, m.of) {
			parts = append(parts, m.of)
		}
	}
	slices.SortFunc(parts, func(a, b string) int { return cmp.Compare(partOrder(a), partOrder(b)) })
	for _, part := range parts {
		p.line("\n## %s", partTitle(part))
		p.line("\n`/metrics/%s`", part)
		p.table("metric", "type", "labels", "meaning")
		for _, m := range all {
			if m.of == part {
				note := ""
				if m.postgres {
					note = " On PostgreSQL alone."
				}
				p.row(code(m.name), m.kind, strings.Join(m.labels, ", "), m.help+note)
			}
		}
	}
	checkReference(t, "metrics.md", p.String())
}

// metric is one as it is described.
type metric struct {
	of         string // contract, and component
	name, help string
	kind       string
	labels     []string
	postgres   bool
}

// partTitle is the heading of a part.
func partTitle(part string) string {
	name, component, _ := strings.Cut(part, "/")
	title := cmp.Or(contractTitles[name], map[string]string{"core": "The node",
		"worker": "Worker API", "admin": "Admin API", "webhook": "Webhooks",
		"bulk": "Bulk operations", "schedule": "Schedules"}[name], name)
	if component != "" {
		title += ", " + component
	}
	return title
}

// partOrder sorts the node first, then contracts.
func partOrder(part string) string {
	if part == telemetry.Core {
		return ""
	}
	return part
}

// metricsOf returns the metrics of a node on a database, by name.
func metricsOf(t *testing.T, database string) (all []metric) {
	t.Helper()
	registries := registriesOf(t, database)
	kinds := map[string]string{}
	families, err := registries.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		kinds[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	registries.Describe(func(contract, role string, d *prometheus.Desc) {
		m := parseDescription(t, d.String())
		m.of = strings.TrimSuffix(contract+"/"+role, "/")
		m.kind = cmp.Or(kinds[m.name], kindByName(m.name))
		if m.kind == "" {
			t.Errorf("%s has no value, and its name does not say what it is", m.name)
		}
		if !isOfProcess(m.name) {
			all = append(all, m)
		}
	})
	slices.SortFunc(all, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	return all
}

// isOfProcess reports whether a metric says something of the Go runtime or the process.
func isOfProcess(name string) bool {
	return strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_")
}

// kindByName returns the type of a metric that has no value on a node that has done nothing.
func kindByName(name string) string {
	switch {
	case strings.HasSuffix(name, "_total"):
		return "counter"
	case strings.HasSuffix(name, "_timestamp_seconds"), strings.HasSuffix(name, "_waiting"),
		strings.HasSuffix(name, "_jobs"):
		return "gauge"
	case strings.HasSuffix(name, "_seconds"), strings.HasSuffix(name, "_bytes"):
		return "histogram"
	}
	return ""
}

var description = regexp.MustCompile(
	`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"),(?: unit: "[^"]*",)? constLabels: \{(.*?)\}, variableLabels: \{(.*)\}\}$`)

// parseDescription reads what the library prints of a metric; it offers nothing else.
func parseDescription(t *testing.T, text string) (m metric) {
	t.Helper()
	parts := description.FindStringSubmatch(text)
	if parts == nil {
		t.Fatalf("cannot read %s", text)
	}
	m.name, _ = strconv.Unquote(parts[1])
	m.help, _ = strconv.Unquote(parts[2])
	for label := range strings.SplitSeq(parts[4], ",") {
		if label != "" {
			m.labels = append(m.labels, code(label))
		}
	}
	return m
}

// registriesOf builds a node on a database, which serves nothing, and returns its registries.
func registriesOf(t *testing.T, database string) *telemetry.Registries {
	t.Helper()
	settings, err := loadSettings(config.Sources{Flags: map[string]string{"data_dir": t.TempDir(),
		"store": database, "listen": "127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	log, err := telemetry.NewLogger(io.Discard, "text", "error")
	if err != nil {
		t.Fatal(err)
	}
	registries, err := telemetry.NewRegistries()
	if err != nil {
		t.Fatal(err)
	}
	observe, err := telemetry.StoreObserver(registries.For(telemetry.Core, ""))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	p := cli.Process{Stdout: io.Discard, Stderr: io.Discard, Now: time.Now,
		Elapsed: func() time.Duration { return time.Since(start) }}
	d := &deps{process: p, settings: settings, log: log, registries: registries, node: nodeName()}
	t.Cleanup(d.close)
	if err := d.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	opened, err := openStore(t.Context(), p, settings, observe)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	d.pool, d.inboxOf, d.runEnds = opened.pool, opened.inbox, opened.runEnds
	if _, err := newNode(t.Context(), d, store.Observed(opened.Store, d.storeMonitor().Do),
		serveMode{}); err != nil {
		t.Fatal(err)
	}
	return registries
}

var (
	typeLine   = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
	seriesLine = regexp.MustCompile(`(?m)^([a-z_0-9]+)\{(.*)\} \S+$`)
	labelName  = regexp.MustCompile(`([a-z_]+)="(?:[^"\\]|\\.)*"`)
	metricRow  = regexp.MustCompile("(?m)^\\| `([a-z_0-9]+)` \\| ([a-z]+) \\| ([^|]*) \\|")
)

// TestMetricsOfARunningNode: the page has each metric, of its type and with its labels, that a node
// shows which has worked for all contracts and has deliveries that wait.
func TestMetricsOfARunningNode(t *testing.T) {
	w := newKeptWorld(t)
	w.serve(filepath.Join(t.TempDir(), "data"))
	w.fill()
	w.call("POST", "/admin/v1/webhooks", `{"url":"http://127.0.0.1:9/","events":["taskflow.job.submitted"],
		"name":"away"}`, 201, nil)
	w.call("POST", "/api/v1/jobs", `{"name":"n","queue":"told"}`, 201, nil)
	var text string
	pollUntil(t.Fatalf, "a delivery that waits to be counted", func() bool {
		_, text = requestCheck{method: "GET", path: "/metrics"}.send(t, w.url)
		return strings.Contains(text, "webhook_queue_jobs{")
	})
	reference, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds, labels := map[string]string{}, map[string]string{}
	for _, row := range metricRow.FindAllStringSubmatch(string(reference), -1) {
		kinds[row[1]] = row[2]
		labels[row[1]] += row[3] + "`contract``component``le`"
	}
	for _, line := range typeLine.FindAllStringSubmatch(text, -1) {
		if !isOfProcess(line[1]) && kinds[line[1]] != line[2] {
			t.Errorf("%s is a %s, on the page %q", line[1], line[2], kinds[line[1]])
		}
	}
	seen := map[string]bool{}
	for _, line := range seriesLine.FindAllStringSubmatch(text, -1) {
		name := line[1]
		if labels[name] == "" {
			name = partOfHistogram.ReplaceAllString(name, "")
		}
		for _, l := range labelName.FindAllStringSubmatch(line[2], -1) {
			if !isOfProcess(name) && !strings.Contains(labels[name], "`"+l[1]+"`") {
				t.Errorf("%s has the label %s, which the page does not name", name, l[1])
			}
		}
		seen[name] = true
	}
	if len(seen) < 50 {
		t.Errorf("the node shows %d metrics", len(seen))
	}
}
