package contract

import (
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// Deliveries are jobs of whatever makes them: of ForgeRun where that is served, else of the node
// itself. To operators they are the same.

// deliveryErrors says how errors of what operators do with deliveries are answered.
var deliveryErrors = httpapi.ErrorTable{
	{Status: http.StatusBadRequest, Kinds: []job.Kind{job.Malformed, job.Invalid}},
	{Status: http.StatusNotFound, Kinds: []job.Kind{job.NotFound}},
	{Status: http.StatusConflict, Kinds: []job.Kind{job.Conflict, job.RunLost}},
	{Status: http.StatusRequestEntityTooLarge, Kinds: []job.Kind{job.TooLarge}},
	{Status: http.StatusServiceUnavailable, RetryAfter: time.Second,
		Kinds: []job.Kind{job.Full, job.Unavailable, job.ReadOnly, job.Aborted, job.Timeout}},
	{Status: http.StatusInternalServerError, Kinds: []job.Kind{job.Internal, job.Cycle},
		OtherStatuses: true},
}

// DeliveryOperator returns what operators may do with the deliveries of webhooks and callbacks. One
// that was given up is a dead letter.
func DeliveryOperator(w *webhook.Webhooks) Operator {
	return Operator{JobType: webhook.Name, Answer: deliveryErrors.Answer,
		Timeline: webhook.Timeline,
		Hide:     webhook.Hide,
		Replay:   w.ReplayDead,
		Actions:  []Action{RunNow(w.Engine)}}
}

// OfDeliveries returns the deliveries as a contract without an API, for operators of a node that
// does not serve ForgeRun.
func OfDeliveries(w *webhook.Webhooks) *Contract {
	return &Contract{Name: webhook.Name, JobTypes: []engine.JobType{w.JobType()},
		Operators: []Operator{DeliveryOperator(w)}, Webhooks: w}
}
