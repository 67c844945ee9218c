package forgerun_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/testkit"
)

// FR-197: lines about deliveries name the contract of deliveries, not that of ForgeRun, and the job
// and the client that they are about.
func TestWebhookLog(t *testing.T) {
	t.Parallel()
	p, c, log := testkit.InMemory(t), config(), &testkit.LogBuffer{}
	c.WebhookLog = slog.New(slog.NewJSONHandler(log, nil)).With(telemetry.Contract, "webhook")
	w := newWorldAt(t, p, c)
	owner, r := w.customer(t), newReceiver(t)
	hook, _ := owner.register(t, r.url, "job_created")
	r.set(http.StatusGone, nil)
	w.runServer(t)
	owner.submit(t, submitBody("SUCCESS_FAST"))
	w.awaitDelivery(t, func() deliveries {
		return testkit.DecodeReply[deliveries](t,
			owner.Do(t, "GET", "/v1/webhooks/"+hook+"/deliveries", "").WantStatus(t, 200))
	}, func(d deliveries) bool { return len(d.Items) > 0 && d.Items[0].Status == "exhausted" })
	given := map[string]any{"msg": "a delivery is given up", "contract": "webhook",
		"job_contract": "forgerun", "client_id": owner.id}
	if lines := log.Lines(t, given); len(lines) != 1 || lines[0]["job_id"] == nil {
		t.Errorf("FR-197 the log of webhooks has %v", lines)
	}
	if lines := w.log.Lines(t, map[string]any{"msg": given["msg"]}); len(lines) != 0 {
		t.Errorf("FR-197 the log of ForgeRun has %v", lines)
	}
}
