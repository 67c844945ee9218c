package simulate

import (
	"time"

	"github.com/millrace/millrace/client"
)

// Delivery is at least once and in the order of a job's events (G-FR-48). The audit compares three
// records of each event: the job's report, which says that it exists, what the receiver got, and
// what the server says of the delivery. The simulator reads no deliveries to a callback; for it the
// first two must agree.

// receiverBehavior is how a receiver of the sink answers.
type receiverBehavior int

const (
	behaviorAccepts      receiverBehavior = iota // accepts, unless the flags add faults
	behaviorStalls                               // does not answer the first request of some events
	behaviorFails                                // answers 5xx to the first request of each event
	behaviorSlow                                 // accepts after a while
	behaviorNeverAccepts                         // answers 5xx to every request
)

// receiver is one receiver of webhooks: a registered webhook, or the callback of jobs.
type receiver struct {
	// name is its path.
	name string
	url  string
	// client is the number of the client.
	client int
	// webhookID is empty for a callback.
	webhookID string
	behavior  receiverBehavior
	// secrets are those that requests may be signed with.
	secrets []string

	// receipts are by job, in order of arrival.
	receipts map[string][]webhookReceipt
	// deliveries are as the server lists them.
	deliveries []client.ForgeRunDelivery
}

// webhookReceipt is one request to a receiver.
type webhookReceipt struct {
	eventID string
	// at is the time by the clock of this machine.
	at time.Time
	// accepted says that it was answered with 2xx.
	accepted bool
	// forgeryReason is why it is not genuine; empty if it is.
	forgeryReason string
}

// checkReceiver checks everything that one receiver got, and that it got everything that it should.
func (a *auditor) checkReceiver(h *receiver) {
	records := a.deliveryRecords(h)
	for jobID, receipts := range h.receipts {
		t := a.byID[jobID]
		for _, r := range receipts {
			if r.forgeryReason != "" {
				a.addViolation("forged", nil, jobID, "%s was sent event %s: %s", h.name, r.eventID,
					r.forgeryReason)
			}
		}
		if t == nil || t.client != h.client || (h.webhookID == "" && t.job.Callback != h.url) {
			a.addViolation("misdelivered", nil, jobID, "%s got an event of it and is not its receiver",
				h.name)
		}
	}
	hasJobs := false
	for i := range a.observed {
		t := &a.observed[i]
		if t.client != h.client || t.report == nil ||
			(h.webhookID == "" && t.job.Callback != h.url) {
			continue
		}
		hasJobs = true
		a.checkEventOrder(h, t)
		a.checkDelivered(h, t, records)
	}
	if hasJobs && len(h.receipts) == 0 {
		a.addViolation("undelivered", nil, "", "%s got no request at all", h.name)
	}
	for eventID := range records {
		if a.events[eventID] == "" && a.allReported(h.client) {
			a.addViolation("delivery", nil, "",
				"%s has a delivery of event %s, which is in no report", h.name, eventID)
		}
	}
}

// allReported reports whether every job of the client has its report. Only then are all its events
// known.
func (a *auditor) allReported(clientNumber int) bool {
	for i := range a.observed {
		if a.observed[i].client == clientNumber && a.observed[i].report == nil {
			return false
		}
	}
	return true
}

// deliveryRecords returns the deliveries that the server lists for a receiver, by event. There must
// be one for each (G-FR-47).
func (a *auditor) deliveryRecords(h *receiver) map[string]*client.ForgeRunDelivery {
	records := map[string]*client.ForgeRunDelivery{}
	for i := range h.deliveries {
		d := &h.deliveries[i]
		if records[d.EventID] != nil {
			a.addViolation("delivery", nil, a.events[d.EventID],
				"%s has two deliveries of event %s", h.name, d.EventID)
		}
		records[d.EventID] = d
	}
	return records
}

// checkEventOrder checks that a receiver got the events of a job in their order: the attempts to
// deliver an event begin when those of earlier events have ended (G-FR-48). The same event may come
// again, because delivery is at least once.
func (a *auditor) checkEventOrder(h *receiver, t *observedJob) {
	firstIndex := map[string]int{}
	for i, e := range t.report.Events {
		firstIndex[e.ID] = i
	}
	reached := 0
	accepted := map[string]bool{}
	for _, r := range h.receipts[t.job.ID] {
		i, known := firstIndex[r.eventID]
		switch {
		case !known:
			a.addViolation("misdelivered", nil, t.job.ID,
				"%s got event %s, which is not in its report", h.name, r.eventID)
			continue
		case i < reached:
			a.addViolation("order", nil, t.job.ID, "%s got event %d after event %d", h.name, i,
				reached)
		case accepted[r.eventID]:
			a.result.repeated++
		}
		accepted[r.eventID] = accepted[r.eventID] || r.accepted
		reached = max(reached, i)
	}
}

// checkDelivered checks that a receiver accepted every event of a job, or that the delivery's
// record says why it has not: given up after attempts, or waiting for a receiver that never
// accepts.
func (a *auditor) checkDelivered(h *receiver, t *observedJob,
	records map[string]*client.ForgeRunDelivery) {
	accepted, attempted := map[string]bool{}, map[string]bool{}
	for _, r := range h.receipts[t.job.ID] {
		attempted[r.eventID] = true
		accepted[r.eventID] = accepted[r.eventID] || r.accepted
	}
	for i, e := range t.report.Events {
		d := records[e.ID]
		status := client.ForgeRunDeliveryStatus("")
		if d != nil {
			status = d.Status
		}
		switch {
		case d == nil && h.webhookID != "":
			a.addViolation("delivery", nil, t.job.ID, "%s has no delivery of event %d (%s)", h.name,
				i, e.Name)
		case status == client.ForgeRunDeliveryDelivered && !accepted[e.ID]:
			a.addViolation("delivery", nil, t.job.ID,
				"event %d (%s) is recorded as delivered, and %s has not accepted it", i, e.Name,
				h.name)
		case accepted[e.ID] && status == client.ForgeRunDeliveryExhausted:
			a.addViolation("delivery", nil, t.job.ID,
				"event %d (%s) is recorded as given up, and %s has accepted it", i, e.Name, h.name)
		case accepted[e.ID]:
		case h.behavior == behaviorAccepts || h.behavior == behaviorSlow:
			a.addViolation("undelivered", nil, t.job.ID,
				"%s did not get event %d (%s), recorded as %q", h.name, i, e.Name, status)
		case status == client.ForgeRunDeliveryExhausted && attempted[e.ID]:
			a.result.givenUp++
		case h.behavior == behaviorNeverAccepts && status == client.ForgeRunDeliveryPending:
			// the next attempt, of this event or of an earlier one, is far in the future
			a.result.pending++
		default:
			a.addViolation("undelivered", nil, t.job.ID,
				"%s has not accepted event %d (%s), recorded as %q", h.name, i, e.Name, status)
		}
	}
}
