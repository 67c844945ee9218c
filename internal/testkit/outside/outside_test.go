package outside

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsclient "github.com/nats-io/nats.go"
)

// TestPrograms starts each program, and builds it first where that is asked for.
func TestPrograms(t *testing.T) {
	t.Run("NATS", func(t *testing.T) {
		server := NewNATS(t, "hush")
		for range 2 {
			conn, err := natsclient.Connect(server.URL, natsclient.Token("hush"))
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
			server.Kill()
			if _, err := natsclient.Connect(server.URL, natsclient.Token("hush")); err == nil {
				t.Error("it answers after it was killed")
			}
			server.Restart()
		}
	})
	t.Run("NATS cluster", func(t *testing.T) {
		cluster := NewNATSCluster(t, "hush")
		cluster.Servers[1].Kill()
		cluster.Servers[1].Restart()
		for i, server := range cluster.Servers {
			conn, err := natsclient.Connect(server.URL, natsclient.Token("hush"))
			if err != nil {
				t.Fatal(err)
			}
			if name := conn.ConnectedServerName(); name != fmt.Sprint("n", i) ||
				conn.ConnectedClusterName() == "" {
				t.Errorf("server %d is %s of the cluster %q", i, name, conn.ConnectedClusterName())
			}
			conn.Close()
		}
	})
	t.Run("S3", func(t *testing.T) {
		server := NewS3(t, "bucket")
		answer, err := http.Get(server.URL + "/bucket")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("without a key it answers %s", answer.Status)
		}
		server.Kill()
		if answer, err := http.Get(server.URL); err == nil {
			answer.Body.Close()
			t.Error("it answers after it was killed")
		}
	})
	t.Run("PostgreSQL and PgBouncer", func(t *testing.T) {
		server := NewPostgres(t, "max_connections=20")
		direct := server.Database("mine")
		pooled := NewPgBouncer(t, server, "pool_mode=transaction").URL("mine", "mine")
		psql := postgresProgram(t, "psql")
		for range 2 {
			for _, url := range []string{direct, pooled} {
				if text, err := exec.Command(psql, "-X", url, "-c",
					"SELECT 1").CombinedOutput(); err != nil {
					t.Errorf("%s: %v %s", url, err, text)
				}
			}
			server.Stop()
			if err := exec.Command(psql, "-X", direct, "-c", "SELECT 1").Run(); err == nil {
				t.Error("it answers after it was stopped")
			}
			server.Start()
		}
	})
	t.Run("axe-core and TypeScript", func(t *testing.T) {
		if text := Axe(t); !strings.Contains(text, "axe-core") {
			t.Errorf("axe-core has %d bytes of something else", len(text))
		}
		script := filepath.Join(t.TempDir(), "script.js")
		if err := os.WriteFile(script, []byte("export const n = 1;\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		CheckTypes(t, script)
	})
	t.Run("SQS", func(t *testing.T) {
		server := NewSQS(t, time.Second)
		answers := func() bool {
			answer, err := http.Get(server.URL + "/health")
			if err == nil {
				answer.Body.Close()
			}
			return err == nil
		}
		for range 2 {
			if !answers() {
				t.Error("it does not answer")
			}
			server.Kill()
			if answers() {
				t.Error("it answers after it was killed")
			}
			server.Restart()
		}
	})
}
