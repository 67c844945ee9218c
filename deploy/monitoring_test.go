package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
)

// monitoredRun is the nodes of Compose and the Prometheus that scrapes them.
type monitoredRun struct {
	*composeRun
	prometheus string // its URL
	key        string // of a client of ForgeRun
	rounds     int
}

// startPrometheus starts Prometheus with the files that Compose mounts, where its image expects
// them. Addresses are of this machine, and a second is what 15 are there.
func (r *monitoredRun) startPrometheus() {
	r.Helper()
	const config, data = "/etc/prometheus/prometheus.yml", "/prometheus"
	service := r.project.Services["prometheus"]
	targets := map[string]bool{}
	paths := []string{"scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s"}
	for name := range r.nodes {
		paths = append(paths, name+":8080", strings.TrimPrefix(r.urls[name], "http://"))
	}
	here, etc := strings.NewReplacer(paths...), filepath.Join(r.dir, "prometheus")
	if err := os.Mkdir(etc, 0o700); err != nil {
		r.Fatal(err)
	}
	for _, v := range service.Volumes {
		targets[v.Target] = true
		if v.Type != types.VolumeTypeBind {
			continue
		}
		if path.Dir(v.Target) != path.Dir(config) {
			r.Fatal(v.Target, " is not beside ", config)
		}
		if err := os.WriteFile(filepath.Join(etc, path.Base(v.Target)),
			[]byte(here.Replace(mustRead(r.T, v.Source))), 0o600); err != nil {
			r.Fatal(err)
		}
	}
	if !targets[config] || !targets[data] || len(service.Command) > 0 {
		r.Fatalf("the image of Prometheus reads %s and writes to %s; Compose mounts %v", config, data,
			targets)
	}
	address := freeAddress(r.T)
	r.start(nil, "prometheus", "--config.file="+filepath.Join(etc, path.Base(config)),
		"--storage.tsdb.path="+filepath.Join(r.dir, "tsdb"), "--web.listen-address="+address)
	r.prometheus = "http://" + address
	await(r.T, "Prometheus to be ready", func() bool {
		resp, err := http.Get(r.prometheus + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// ask reads an answer of Prometheus, which must be no error.
func (r *monitoredRun) ask(path string, into any) {
	r.Helper()
	resp, err := http.Get(r.prometheus + "/api/v1/" + path)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
		Warnings      []string
	}
	err = json.NewDecoder(resp.Body).Decode(&answer)
	if err == nil && answer.Status == "success" && len(answer.Warnings) == 0 {
		err = json.Unmarshal(answer.Data, into)
	}
	if err != nil || answer.Status != "success" || len(answer.Warnings) > 0 {
		r.Fatalf("%s: %v %s %v", path, err, answer.Error, answer.Warnings)
	}
}

// query returns the values of the series that an expression has, without those that are no number.
func (r *monitoredRun) query(expression string) (values []string) {
	r.Helper()
	var data struct{ Result []struct{ Value [2]any } }
	r.ask("query?query="+url.QueryEscape(expression), &data)
	for _, series := range data.Result {
		if v := fmt.Sprint(series.Value[1]); v != "NaN" {
			values = append(values, v)
		}
	}
	return values
}

// register makes a client of ForgeRun, whose webhook fails.
func (r *monitoredRun) register() {
	r.Helper()
	refuses := httptest.NewServer(http.NotFoundHandler())
	r.Cleanup(refuses.Close)
	var made struct {
		Client string `json:"client_id"`
		Key    string `json:"api_key"`
	}
	r.decode(r.send("node-a", "", "POST", "/v1/clients", "{}", "application/json"), &made)
	r.decode(r.send("node-a", "", "POST", "/v1/clients/"+made.Client+"/keys", "{}",
		"application/json"), &made)
	r.key = made.Key
	r.send("node-a", r.key, "POST", "/v1/webhooks", fmt.Sprintf(
		`{"url":%q,"events":["job_succeeded"]}`, refuses.URL), "application/json")
}

// work has a node run jobs of each contract: in Relay one of each is completed, lost and left, in
// TaskFlow one fails. A second request with the same ids is no failure for its client, and is one
// of a statement.
func (r *monitoredRun) work(node string) {
	r.Helper()
	r.rounds++
	jobs := fmt.Sprintf(`[{"queue":"mail","id":"%d","timeout":60,"payload":1},`+
		`{"queue":"lost","id":"%[1]d","timeout":0,"max_retries":1,"payload":1}]`, r.rounds)
	for range 2 {
		r.call(node, "POST", "/v2/queues/jobs?mode=ignore", jobs, "application/json")
	}
	var claimed []struct {
		ID    string
		RunID string `json:"run_id"`
	}
	r.call(node, "GET", "/v2/queues/lost/jobs", "", "")
	r.decode(r.call(node, "GET", "/v2/queues/mail/jobs", "", ""), &claimed)
	for _, j := range claimed {
		r.call(node, "DELETE", "/v2/queues/mail/jobs/"+j.ID+"/run-id/"+j.RunID, "", "")
	}
	r.call(node, "POST", "/api/v1/jobs",
		`{"name":"n","queue":"etl","retry_policy":{"max_attempts":1}}`, "application/json")
	var runs struct {
		Jobs []struct {
			RunID string `json:"run_id"`
		}
	}
	r.decode(r.call(node, "POST", "/worker/v1/claims",
		`{"contract":"taskflow","queues":["etl"],"max":1,"worker":"host:1"}`, "application/json"), &runs)
	for _, j := range runs.Jobs {
		r.call(node, "POST", "/worker/v1/runs/"+j.RunID+"/fail",
			`{"error":"it rains","retryable":false}`, "application/json")
	}
	r.send(node, r.key, "POST", "/v1/jobs", `{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`,
		"application/json")
	r.call(node, "POST", "/jobs", `{"manifest_version":"v1","metadata":{},"resources":[`+
		`{"id":"a","url":"http://127.0.0.1:1/a"}]}`, "application/json")
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 200, 200))); err != nil {
		r.Fatal(err)
	}
	r.call(node, "POST", "/images/v1/files?sizes=100", picture.String(), "image/png")
}

// unavailable is the label of statements that a database has refused, which only an outage makes.
const unavailable = `error="unavailable"`

// threshold is the end of a comparison in an alert.
var threshold = regexp.MustCompile(` (?:>|==) [0-9.]+`)

// checkTargets waits until Prometheus has scraped both nodes.
func (r *monitoredRun) checkTargets() {
	r.Helper()
	await(r.T, "both nodes to be scraped", func() bool {
		var data struct {
			ActiveTargets []struct{ Health, ScrapeURL, LastError string }
		}
		r.ask("targets", &data)
		up := 0
		for _, target := range data.ActiveTargets {
			if target.Health == "up" {
				up++
			}
		}
		return up == len(r.nodes) && len(data.ActiveTargets) == len(r.nodes)
	})
}

// checkQueries wants a number of every query while the nodes work. Of an alert, which has one only
// when it is raised, it is what is compared with the threshold.
func (r *monitoredRun) checkQueries() {
	r.Helper()
	var empty, outage []string
	for _, e := range expressions(r.T) {
		// What Grafana makes of the variable, by the interval of prometheus.yml.
		e = strings.ReplaceAll(e, "$__rate_interval", "1m")
		r.query(e)
		if e = threshold.ReplaceAllString(e, ""); strings.Contains(e, unavailable) {
			outage = append(outage, e)
			continue
		}
		empty = append(empty, e)
	}
	if len(outage) != 1 {
		r.Fatalf("about a database that is away: %q", outage)
	}
	r.T.Cleanup(func() {
		if r.Failed() {
			r.Logf("without a number:\n%s", strings.Join(empty, "\n"))
		}
	})
	await(r.T, "a number of every query", func() bool {
		for name := range r.nodes {
			r.work(name)
		}
		empty = slices.DeleteFunc(empty, func(e string) bool { return len(r.query(e)) > 0 })
		return len(empty) == 0
	})
	if got := r.query(outage[0]); len(got) > 0 {
		r.Errorf("before there was an outage %s has %v", outage[0], got)
	}
	await(r.T, "a number of an outage", func() bool {
		r.endSessions()
		return len(r.query(outage[0])) > 0
	})
	for name := range r.nodes {
		await(r.T, name+" to be ready again", func() bool {
			resp, err := http.Get(r.urls[name] + "/health/ready")
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		})
	}
}

// endSessions ends the sessions of the nodes, as a database that fails does.
func (r *monitoredRun) endSessions() {
	r.Helper()
	mustShell(r.T, ".", "psql -qXAtc 'SELECT pg_terminate_backend(pid) FROM pg_stat_activity "+
		"WHERE datname=current_database() AND pid<>pg_backend_pid()' '"+r.store+"'")
}

// alertStates returns the state of each rule that Prometheus evaluates, all without an error.
func (r *monitoredRun) alertStates() map[string]string {
	r.Helper()
	states := map[string]string{}
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError, State string }
		}
	}
	r.ask("rules", &data)
	for _, g := range data.Groups {
		for _, rule := range g.Rules {
			states[rule.Name] = rule.State
			if rule.Health != "ok" {
				states[rule.Name] = rule.Health
			}
			if rule.LastError != "" {
				r.Errorf("%s: %s", rule.Name, rule.LastError)
			}
		}
	}
	return states
}

// TestPrometheusOfCompose: Prometheus with the settings of Compose scrapes both nodes, every query
// of the dashboard, the alerts and the autoscaling has a number once jobs of each contract have
// run, the alerts are evaluated, and the one of a node that is down is about to be raised when the
// nodes are stopped.
func TestPrometheusOfCompose(t *testing.T) {
	program(t, "prometheus")
	r := &monitoredRun{composeRun: newComposeRun(t)}
	r.startPrometheus()
	r.checkTargets()
	r.register()
	r.checkQueries()
	for _, rule := range alertRules(t) {
		switch got := r.alertStates()[rule.Alert]; {
		case rule.Alert == "MillraceNodeDown" && got != "inactive":
			t.Errorf("%s is %s while both nodes are up", rule.Alert, got)
		case got != "inactive" && got != "pending" && got != "firing":
			t.Errorf("%s is %q", rule.Alert, got)
		}
	}
	r.stop()
	await(t, "the alert of nodes that are down", func() bool {
		return r.alertStates()["MillraceNodeDown"] == "pending"
	})
}

// TestGrafanaOfCompose: what Compose mounts is where Grafana looks for it, and the dashboard uses
// the data source that is provisioned, which is the service of Prometheus.
func TestGrafanaOfCompose(t *testing.T) {
	t.Parallel()
	project := composeProject(t)
	mounted := map[string]string{} // sources by targets
	var sources struct {
		APIVersion  int
		Datasources []struct {
			Name, Type, Access, URL string
			IsDefault               bool
		}
	}
	var dashboards struct {
		APIVersion int
		Providers  []struct {
			Name, Type string
			Options    struct{ Path string }
		}
	}
	for _, v := range project.Services["grafana"].Volumes {
		if mounted[v.Target] = v.Source; !strings.HasPrefix(v.Target, "/etc/grafana/") {
			continue
		}
		switch folder, _ := path.Split(v.Target); folder {
		case "/etc/grafana/provisioning/datasources/":
			mustDecode(t, mustRead(t, v.Source), &sources)
		case "/etc/grafana/provisioning/dashboards/":
			mustDecode(t, mustRead(t, v.Source), &dashboards)
		default:
			t.Errorf("Grafana does not read %s", v.Target)
		}
		if path.Ext(v.Target) != ".yml" {
			t.Errorf("Grafana does not read %s", v.Target)
		}
	}
	if len(sources.Datasources) != 1 || len(dashboards.Providers) != 1 {
		t.Fatalf("provisioned: %+v, %+v", sources, dashboards)
	}
	source, provider := sources.Datasources[0], dashboards.Providers[0]
	address, err := url.Parse(source.URL)
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(project.Services[address.Hostname()].Ports[0].Target)
	if address.Hostname() != "prometheus" || address.Port() != port || !source.IsDefault ||
		source.Access != "proxy" {
		t.Errorf("the data source is %+v", source)
	}
	files, err := filepath.Glob(filepath.Join(mounted[provider.Options.Path], "*.json"))
	if err != nil || len(files) != 1 || provider.Type != "file" {
		t.Fatalf("%+v provides %v, %v", provider, files, err)
	}
	checkDatasource(t, files[0], source.Type)
}

// checkDatasource: a dashboard has one variable, a data source of a type, and each of its panels
// uses that.
func checkDatasource(t *testing.T, file, kind string) {
	t.Helper()
	type reference struct{ Type, UID string }
	var d struct {
		UID, Title string
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
		Panels []struct {
			Title      string
			Datasource reference
			Targets    []struct{ Datasource *reference }
		}
	}
	if err := json.Unmarshal([]byte(mustRead(t, file)), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Templating.List) != 1 || d.UID == "" || d.Title == "" {
		t.Fatalf("the dashboard is %+v", d)
	}
	variable := d.Templating.List[0]
	if variable.Type != "datasource" || variable.Query != kind {
		t.Errorf("the variable is %+v", variable)
	}
	want := reference{kind, "${" + variable.Name + "}"}
	for _, p := range d.Panels {
		if p.Datasource != want {
			t.Errorf("%s uses %+v", p.Title, p.Datasource)
		}
		for _, target := range p.Targets {
			if target.Datasource != nil && *target.Datasource != want {
				t.Errorf("a query of %s uses %+v", p.Title, *target.Datasource)
			}
		}
	}
}
