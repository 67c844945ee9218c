package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ranBlocks says of each page how many blocks of code it has, which tests run them, and what is
// not run, and why.
var ranBlocks = map[string]struct {
	blocks     int
	tests, not string
}{
	"README.md": {5, "TestGuidesOfTheDocs TestInstallingOfTheDocs", ""},
	"backup.md": {7, "TestBackupOfTheDocs", ""},
	"deploy.md": {6, "TestImage TestImageInPodman TestCompose TestInstallOfThePage " +
		"TestKubernetes TestPrometheusOfThePage",
		"docker compose, systemctl and kubectl apply: no registry, no cluster"},
	"fetchbox.md": {1, "TestGuidesOfTheDocs", ""},
	"forgerun.md": {3, "TestForgeRunOfTheDocs TestGuidesOfTheDocs", ""},
	"handlers.md": {14, "TestHandlersOfTheDocs TestFilesOfSettingsInTheDocs", ""},
	"images-worker.md": {3, "TestImagesWork",
		"the server of the page is started by the test; JSON is what the command reads and prints"},
	"images.md":                {1, "TestGuidesOfTheDocs", ""},
	"operating.md":             {8, "TestCommandsOfOperating TestFilesOfSettingsInTheDocs", ""},
	"performance-contracts.md": {1, "", "it measures"},
	"postgresql.md":            {4, "TestPostgresOfTheDocs", ""},
	"producers.md": {3, "TestProducerOfTheDocs",
		"the shell line, whose server has the default ports"},
	"proxies.md":  {4, "TestBehindNginx TestBehindCaddy TestBehindEnvoy", ""},
	"recipes.md":  {21, "TestRecipesOfTheDocs", ""},
	"relay.md":    {6, "TestGuidesOfTheDocs TestFilesOfSettingsInTheDocs", ""},
	"releases.md": {3, "TestRelease", "apt and systemctl"},
	"reliability.md": {3, "TestRun TestBugsApply TestCrashPoints TestHostileLoad TestIsolationMatrix",
		"runs of minutes"},
	"scaling.md": {7, "TestScalingByContract TestScalingByQueue TestScalingNATS TestScalingReplica " +
		"TestScalingFailover TestScalingPatroni",
		""},
	"schedules.md": {3, "TestGuidesOfTheDocs TestFilesOfSettingsInTheDocs", ""},
	"security.md":  {7, "TestSecurityOfTheDocs", ""},
	"sqlite.md":    {1, "TestSQLiteOfTheDocs", ""},
	"start.md":     {26, "TestStartOfTheDocs TestInstallingOfTheDocs TestGuidesOfTheDocs", ""},
	"taskflow.md":  {8, "TestGuidesOfTheDocs TestWorkerOfTheDocs TestFilesOfSettingsInTheDocs", ""},
	"transactions.md": {15, "TestTransactionsOfTheDocs",
		"runs of hours"},
	"webhooks.md": {6, "TestGuidesOfTheDocs TestGenuineOfTheDocs",
		"the bodies of events, which TestReferenceEvents has"},
}

// TestBlocksOfTheDocs: each page with code has tests that run it. A block that is added fails here
// until its page says again which tests run its blocks.
func TestBlocksOfTheDocs(t *testing.T) {
	t.Parallel()
	written := ""
	for _, dir := range []string{".", "../../deploy", "../../torture"} {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			written += string(text)
		}
	}
	tests := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(written,
		-1) {
		tests[found[1]] = true
	}
	for name, page := range documents(t) {
		blocks := 0
		for _, block := range codeBlock.FindAllStringSubmatch(page, -1) {
			if block[1] != "" {
				blocks++
			}
		}
		ran := ranBlocks[name]
		if blocks != ran.blocks {
			t.Errorf("%s has %d blocks, and tests are named for %d", name, blocks, ran.blocks)
		}
		if blocks > 0 && ran.tests == "" && ran.not == "" {
			t.Errorf("no test runs what %s has", name)
		}
		for test := range strings.FieldsSeq(ran.tests) {
			if !tests[test] {
				t.Errorf("%s: there is no %s", name, test)
			}
		}
	}
}
