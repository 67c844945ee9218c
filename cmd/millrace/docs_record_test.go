package main

import (
	"slices"
	"strings"
	"testing"
)

// recordedBlock says of a block of commands, which a text begins that no other block of its page
// begins with, which tests run it, and what of it none runs, and why.
type recordedBlock struct{ begins, tests, not string }

// longTests is the reason that several blocks have.
const longTests = "tests that run for minutes: others find the packages, tests and flags of each " +
	"command, and .ci/run runs the tests with smaller numbers"

// recordedCommands is the record of all blocks of commands of the documents, by their pages. Ports,
// folders, and numbers and times of loads are those of the tests. A test whose name is that of a
// file is of another language.
var recordedCommands = map[string][]recordedBlock{
	"README.md": {
		{"go run ./cmd/millrace demo", "", ".ci/run runs both, and TestScripts the demonstration"},
		{"go build -o millrace", "TestInstallingOfTheDocs", ""},
		{"millrace serve", "TestInstallingOfTheDocs", ""},
		{"curl -i localhost:8080/v2/queues/jobs", "TestGuidesOfTheDocs", ""},
		{"printf ", "TestGuidesOfTheDocs", ""},
	},
	"bench/README.md": {
		{"cd bench\n", "TestRunsOfThePages", "go test, which runs this test"},
		{"go run . -n 30000 -warmup 1000 -rounds 3 forgerun-submit", "TestRunsOfThePages", ""},
		{"go run . -n 100000 -warmup 2000 -rounds 3 -timeout 5m taskflow", "TestRunsOfThePages", ""},
		{"go run . -n 20000 -warmup 4000", "TestRunsOfThePages", ""},
		{"go run . -n 5000 ", "TestRunsOfThePages", ""},
		{"go run . -n 100000 -warmup 2000 -rounds 1 ", "TestRunsOfThePages", ""},
		{"go run . -n 20000 -warmup 2000 -rounds 5 -ref queue-floor", "TestRunsOfThePages",
			"peers that are not installed, which a run leaves out"},
		{"go run . sizes", "TestRunsOfThePages", ""},
		{"go run . curves", "TestRunsOfThePages", "-full, which fills disks: the test has -max"},
		{"go run . ageing", "TestRunsOfThePages", ""},
		{"go run . admin", "TestRunsOfThePages", ""},
		{"go run . watchers", "TestRunsOfThePages", ""},
		{"go run . -n 500000", "TestRunsOfThePages",
			"git worktree, as COMMIT is the reader's: pair compares the tree with itself"},
	},
	"clients/python/README.md": {
		{"millrace serve", "clients/python/tests/test_readme.py", ""},
		{"python3 -m venv", "clients/python/tests/test_readme.py", ""},
		{"python enqueue.py", "clients/python/tests/test_readme.py", ""},
		{"export MILLRACE_OPERATOR_TOKEN", "clients/python/tests/test_readme.py", ""},
		{"cd clients/python", "clients/python/tests/test_readme.py", "it is what runs the test itself"},
	},
	"clients/typescript/README.md": {
		{"millrace serve", "clients/typescript/test/readme.test.js",
			"the test runs the binary with a server of its own: TestInstallingOfTheDocs has the command"},
		{"npm --prefix clients/typescript install", "clients/typescript/test/readme.test.js",
			"the compiler comes from a registry, once: .ci/clients has it, and compiles"},
		{"mkdir ../my-app", "clients/typescript/test/readme.test.js", ""},
		{"node enqueue.mjs", "clients/typescript/test/readme.test.js", ""},
		{"npm install --save-dev typescript", "clients/typescript/test/readme.test.js",
			"the compiler, as above: its other lines are run"},
	},
	"docs/backup.md": {
		{"millrace backup", "TestBackupOfTheDocs TestBackupUnderLoad", ""},
		{"millrace restore", "TestBackupOfTheDocs TestBackupUnderLoad", ""},
		{"umask 077", "TestBackupOfTheDocs", ""},
		{"pg_restore", "TestBackupOfTheDocs", ""},
		{"millrace migrate --from sqlite:", "TestBackupOfTheDocs", ""},
		{`millrace migrate --from "$STORE"`, "TestBackupOfTheDocs", ""},
		{"sqlite3", "TestBackupOfTheDocs", ""},
	},
	"docs/deploy.md": {
		{"make image-context", "TestImage TestImageInPodman", ""},
		{"docker run", "TestImageInPodman", ""},
		{"cd deploy", "TestComposeOfThePage", "docker compose, which needs images of others: " +
			"TestNodesOfCompose has what it would start as processes"},
		{"install -D", "TestInstallOfThePage", "the start by systemd, which machines of checks do " +
			"not have: it is enabled below another root"},
		{"openssl rand", "TestKubernetesOfThePage", "the cluster: what it would get is printed"},
		{"promtool", "TestPrometheusOfThePage", ""},
	},
	"docs/fetchbox.md": {{"# 202", "TestGuidesOfTheDocs", ""}},
	"docs/forgerun.md": {
		{"CLIENT=", "TestForgeRunOfTheDocs", ""},
		{"  # In another terminal", "TestForgeRunOfTheDocs", ""},
		{"millrace serve --set data_dir=load", "TestGuidesOfTheDocs", ""},
	},
	"docs/handlers.md": {{"curl", "TestHandlersOfTheDocs", ""}},
	"docs/images-worker.md": {{"millrace serve --no-workers", "TestImagesWork",
		"the server, which the test starts on a free port"}},
	"docs/images.md": {{"cp ", "TestGuidesOfTheDocs", ""}},
	"docs/operating.md": {
		{"curl -s $URL/health/ready", "TestCommandsOfOperating", ""},
		{"millrace webhooks list", "TestCommandsOfOperating", ""},
		{"millrace clients list", "TestCommandsOfOperating", ""},
		{"curl -s $URL/metrics", "TestCommandsOfOperating", ""},
		{"millrace operator token", "TestCommandsOfOperating", ""},
	},
	"docs/performance-contracts.md": {{"export URL=", "TestGuidesOfTheDocs",
		"10,000 schedules for two minutes: the test has 60, and waits for the first"}},
	"docs/postgresql.md": {{"psql", "TestPostgresOfTheDocs", ""}},
	"docs/producers.md":  {{"millrace serve", "TestProducerLinesOfTheDocs", ""}},
	"docs/recipes.md": {
		{"post() {", "TestRecipesOfTheDocs", ""},
		{"create() {", "TestRecipesOfTheDocs", ""},
		{"millrace queues set taskflow/mail_7", "TestRecipesOfTheDocs", ""},
		{"NUMBER=", "TestRecipesOfTheDocs", ""},
		{"millrace schedules add weekly", "TestRecipesOfTheDocs", ""},
		{"for n in 1 2 3; do\n  curl", "TestRecipesOfTheDocs", ""},
		{"N=${N:-1000000}", "TestRecipesOfTheDocs", ""},
		{"millrace queues show relay/backfill", "TestRecipesOfTheDocs", ""},
	},
	"docs/relay.md": {
		{"# Submit a job", "TestGuidesOfTheDocs", ""},
		{"# Complete up to 50,000 runs", "TestGuidesOfTheDocs", ""},
		{"# The oldest first", "TestGuidesOfTheDocs", ""},
		{"printf '%s\\n' '{\"to\"", "TestGuidesOfTheDocs", ""},
		{"printf '%s\\n' '{\"n\"", "TestGuidesOfTheDocs", ""},
	},
	"docs/releases.md": {
		{"git tag", "TestRelease", "other platforms, where MILLRACE_TEST_RELEASES is not set"},
		{"apt install", "TestRelease", "apt simulates, and the service is enabled below another root"},
		{"pip install", "TestRelease", ""},
	},
	"docs/reliability.md": {
		{"go run ./torture -seed 7", "TestRunsOfThePage TestCommandsOfThePage", "all seeded bugs, " +
			"which take an hour; tests of their own have what needs other servers (coveredRuns)"},
		{"go run ./torture -only power-cut", "TestRunsOfThePage TestCommandsOfThePage", "what tests of " +
			"their own have, and asynchronous standbys (coveredRuns)"},
		{"MILLRACE_TEST_CROWD=", "TestGoTestsOfTheDocs", longTests},
		{"go run ./torture -seed 611", "TestCommandsOfThePage", "loads of minutes: TestFailover loses " +
			"primaries for seconds"},
		{"go run ./torture -recovery", "TestRunsOfThePage", ""},
		{"git worktree add", "TestCommandsOfThePage", "COMMIT is the reader's: TestOlderNode has two " +
			"versions together"},
		{"MILLRACE_TEST_CRASH_ROUNDS=", "TestGoTestsOfTheDocs", longTests},
		{"go run ./torture -points all", "TestCommandsOfThePage", "an hour: TestCrashPoints dies once " +
			"at each point"},
		{"MILLRACE_TEST_SIM_STORE=", "TestGoTestsOfTheDocs", longTests},
		{"go test ./internal/account", "TestGoTestsOfTheDocs", longTests},
		{"go test ./cmd/millrace -run 'TestHostile|", "TestGoTestsOfTheDocs", longTests},
		{"for seed in", "TestGoTestsOfTheDocs", longTests},
	},
	"docs/scaling.md": {{"pg_dump", "TestScalingReplica", ""}},
	"docs/schedules.md": {
		{"millrace schedules add report", "TestGuidesOfTheDocs", ""},
		{"millrace schedules add nightly", "TestGuidesOfTheDocs", ""},
	},
	"docs/security.md": {
		{"curl -s $URL/api/v1/jobs", "TestSecurityOfTheDocs", ""},
		{"export MILLRACE__TOKEN=", "TestSecurityOfTheDocs", ""},
		{"for path in", "TestSecurityOfTheDocs", ""},
	},
	"docs/sqlite.md": {{"sqlite3", "TestSQLiteOfTheDocs", ""}},
	"docs/start.md": {
		{"tar -xf", "TestRelease", ""},
		{"export PYTHONPATH=", "TestStartOfTheDocs TestRelease", ""},
		{"npm install ./clients", "TestRelease TestStartOfTheDocs", ""},
		{"go work init", "TestStartOfTheDocs TestRelease",
			"go run: it builds the program, which is run then"},
		{"python3 -m venv", "TestRelease", ""},
		{"npm install ./millrace", "TestRelease", ""},
		{"go build", "TestInstallingOfTheDocs", ""},
		{"mkdir -p ../my-app && cd ../my-app && go mod init", "TestStartOfTheDocs", ""},
		{"npm --prefix", "TestInstallingOfTheDocs", "the compiler comes from a registry: the test " +
			"compares the commands with those of clients/typescript/README.md, and TestStartOfTheDocs " +
			"installs what .ci/clients has compiled"},
		{"curl -s localhost:8080/v2/queues/jobs", "TestStartOfTheDocs", ""},
		{"GRAPH=", "TestStartOfTheDocs", ""},
		{"CLIENT=", "TestStartOfTheDocs", ""},
		{"millrace fetch", "TestStartOfTheDocs", ""},
		{"base64 -d", "TestStartOfTheDocs", ""},
		{`export PATH="$PWD:`, "TestGuidesOfTheDocs TestInstallingOfTheDocs", ""},
	},
	"docs/taskflow.md": {
		{"JOBS=", "TestGuidesOfTheDocs", ""},
		{"cat > graph.json", "TestGuidesOfTheDocs TestGraphOfTheDocs", ""},
		{"curl -s -X POST $JOBS/$B/rerun", "TestGuidesOfTheDocs", ""},
		{"cat > load.sh", "TestGuidesOfTheDocs TestGraphOfTheDocs", ""},
		{"go mod edit", "TestStartOfTheDocs", ""},
	},
	"docs/transactions.md": {
		{"millrace inbox list", "TestTransactionsOfTheDocs", ""},
		{"export MILLRACE_TEST_POSTGRES=", "TestGoTestsOfTheDocs", longTests},
	},
	"docs/webhooks.md": {
		{"KEY=", "TestGuidesOfTheDocs", ""},
		{"millrace webhooks add", "TestGuidesOfTheDocs", ""},
		{"curl -s localhost:8080/api/v1/jobs", "TestGuidesOfTheDocs", ""},
	},
	"docs/workers.md": {
		{"ID=", "TestWorkersOfTheDocs", ""},
		{"curl -s localhost:8080/worker/v1/claims", "TestGuidesOfTheDocs", ""},
	},
}

// maxNotRun is how many blocks of commands may stand in the record without a test that reads them.
const maxNotRun = 1

// commandBlocks are the blocks of commands of a page.
func commandBlocks(page string) (all []string) {
	for _, block := range codeBlock.FindAllStringSubmatch(page, -1) {
		if block[1] == "sh" {
			all = append(all, block[2])
		}
	}
	return all
}

// TestRecordOfTheDocs: each block of commands is in the record, once, with a test that reads its
// page and runs it, or with what of it no test runs. A block that stands there as one of
// TestGuidesOfTheDocs is among those that this one runs.
func TestRecordOfTheDocs(t *testing.T) {
	t.Parallel()
	sources, pages := allTestSources(t), allPages(t)
	blocks, notRun, inPart := 0, 0, 0
	for name, page := range pages {
		for _, block := range commandBlocks(page) {
			blocks++
			entries := slices.DeleteFunc(slices.Clone(recordedCommands[name]),
				func(b recordedBlock) bool { return !strings.HasPrefix(block, b.begins) })
			if len(entries) != 1 {
				t.Errorf("%s has commands with %d entries in the record: %s", name, len(entries), block)
				continue
			}
			b := entries[0]
			switch {
			case b.tests == "" && b.not == "":
				t.Errorf("%s: nothing runs %q, and nothing says why", name, b.begins)
			case b.tests == "":
				notRun++
			case b.not != "":
				inPart++
			}
			for test := range strings.FieldsSeq(b.tests) {
				if problem := sources.problem(test, name); problem != "" {
					t.Errorf("%s, %q: %s %s", name, b.begins, test, problem)
				}
			}
			if strings.Contains(b.tests, "TestGuidesOfTheDocs") && !isGuided(name, block) {
				t.Errorf("%s: TestGuidesOfTheDocs does not run %q", name, b.begins)
			}
		}
	}
	for name, entries := range recordedCommands {
		if len(entries) != len(commandBlocks(pages[name])) {
			t.Errorf("%s has %d blocks of commands, and the record %d", name,
				len(commandBlocks(pages[name])), len(entries))
		}
	}
	t.Logf("%d blocks of commands: %d are not run, %d in part", blocks, notRun, inPart)
	if (blocks < 100) || (notRun > maxNotRun) {
		t.Errorf("%d blocks of commands, %d of which are not run", blocks, notRun)
	}
}

// isGuided reports whether a block is among those of a page that TestGuidesOfTheDocs runs.
func isGuided(page, block string) bool {
	return slices.ContainsFunc(runGuides, func(g guide) bool {
		return (g.page == page) && !slices.ContainsFunc(g.omit, func(part string) bool {
			return strings.Contains(block, part)
		})
	})
}
