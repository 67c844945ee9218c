package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/external"
	"github.com/millrace/millrace/internal/setting"
)

const testSigningSecret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"

// TestQueues goes through the settings of single queues (G-TF-37).
func TestQueues(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, Sources{
		File: mustFile(t, "[taskflow.queues]\n[taskflow.queues.Mail]\nhandler = \"http\"\nurl = "+
			"\"http://127.0.0.1:9/x\"\n"+
			"secret = \""+testSigningSecret+
			"\"\n[taskflow.queues.empty]\n[taskflow.queues.slow]\nmax_concurrent = 2\n"+
			"[taskflow.queues.script]\nhandler = \"exec\"\ncommand = [\"python3\", \"a b.py\", \"\"]\n"+
			"directory = \"/opt\"\nmemory = \"64MiB\"\nmax_output = \"4KiB\"\n"+
			"environment = { KEY = \"hush\" }\n"),
		Environ: []string{"MILLRACE__TASKFLOW__QUEUES__DEMO__HANDLER=simulate"},
		Flags: map[string]string{"taskflow.queues.Mail.timeout": "5s",
			"taskflow.queues.script.environment.Other": "x y"},
	})
	mail, script := external.Defaults(), external.Defaults()
	mail.URL, mail.Timeout = "http://127.0.0.1:9/x", 5*time.Second
	script.Command, script.Directory = []string{"python3", "a b.py", ""}, "/opt"
	script.Memory, script.MaxOutput = 64<<20, 4<<10
	for name, want := range map[string]taskflow.Queue{
		"Mail":   {Handler: "http", Settings: mail},
		"slow":   {Handler: "none", Settings: external.Defaults(), MaxConcurrent: 2},
		"demo":   {Handler: "simulate", Settings: external.Defaults()},
		"script": {Handler: "exec", Settings: script},
	} {
		got := s.TaskFlow.Queues[name]
		if got == nil {
			t.Errorf("%s has no settings", name)
			continue
		}
		if secret := got.Secret.Reveal(); (name == "Mail" && secret != testSigningSecret) ||
			(name != "Mail" && secret != "") {
			t.Errorf("%s: the secret is %q", name, secret)
		}
		plain := *got
		if name == "script" && (len(plain.Environment) != 2 ||
			plain.Environment["KEY"].Reveal() != "hush" ||
			plain.Environment["Other"].Reveal() != "x y") {
			t.Errorf("%d variables", len(plain.Environment))
		}
		plain.Secret, plain.Environment = setting.Secret{}, nil
		if !reflect.DeepEqual(plain, want) {
			t.Errorf("%s: got %+v, want %+v", name, plain, want)
		}
	}
	if len(s.TaskFlow.Queues) != 4 {
		t.Errorf("got %d queues", len(s.TaskFlow.Queues))
	}
	var b strings.Builder
	if err := s.Resolved().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{"taskflow.queues.Mail.secret *** file ",
		"taskflow.queues.Mail.timeout 5s flag --set taskflow.queues.Mail.timeout",
		"taskflow.queues.demo.handler simulate environment MILLRACE__TASKFLOW__QUEUES__DEMO__HANDLER", "taskflow.queues.slow.max_concurrent 2 file ",
		`taskflow.queues.script.command ["python3","a b.py",""] file `,
		"taskflow.queues.script.environment KEY: ***, Other: *** "} {
		if !strings.Contains(lines, want) {
			t.Errorf("%q is missing in %s", want, b.String())
		}
	}
	if strings.Contains(b.String(), testSigningSecret) || strings.Contains(b.String(), "hush") {
		t.Error("the secret is shown")
	}
}

func TestServesWorkers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		s    Settings
		want bool
	}{
		{Settings{Listen: "127.0.0.1:1", Contracts: []string{"taskflow"}}, true},
		{Settings{Listen: "127.0.0.1:1", Contracts: []string{"forgerun"}}, true},
		{Settings{Listen: "127.0.0.1:1", Contracts: []string{"relay"}}, false},
		{Settings{Listen: ":1", Contracts: []string{"forgerun"}}, false},
		{Settings{Listen: ":1", Contracts: []string{"forgerun"},
			Worker: Worker{Token: setting.NewSecret("w")}}, true},
	} {
		tt.s.groups = new(loaded).groups(nil)
		if got := tt.s.ServesWorkers(); got != tt.want {
			t.Errorf("%+v: got %v", tt.s, got)
		}
	}
}
