package simulate

import (
	"time"

	"github.com/millrace/millrace/client"
)

// receiverBehavior is how a receiver of the sink behaves.
type receiverBehavior int

const (
	// accepts, but for what the flags spoil of first tries
	behaviorAccepts      receiverBehavior = iota
	behaviorStalls                        // does not answer the first try of some events
	behaviorFails                         // answers 5xx to the first try of each event
	behaviorSlow                          // accepts late
	behaviorNeverAccepts                  // answers 5xx whatever comes
)

// receiver is one listener: a registered webhook, or the callback of jobs.
type receiver struct {
	name      string
	url       string
	client    int
	webhookID string // empty for a callback
	behavior  receiverBehavior
	secrets   []string

	receipts   map[string][]webhookReceipt // by job, in order of arrival
	deliveries []client.ForgeRunDelivery
}

// webhookReceipt is one request to a listener.
type webhookReceipt struct {
	eventID       string
	at            time.Time
	accepted      bool
	forgeryReason string // what is wrong with it; empty when it is genuine
}

// hook accounts for everything that one listener should have heard, and has.
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
			a.addViolation("foreign", nil, jobID, "%s heard of it and is none of its listeners",
				h.name)
		}
	}
	listens := false
	for i := range a.observed {
		t := &a.observed[i]
		if t.client != h.client || t.report == nil ||
			(h.webhookID == "" && t.job.Callback != h.url) {
			continue
		}
		listens = true
		a.checkEventOrder(h, t)
		a.checkDelivered(h, t, records)
	}
	if listens && len(h.receipts) == 0 {
		a.addViolation("undelivered", nil, "", "%s has not been tried at all", h.name)
	}
	for eventID := range records {
		if a.events[eventID] == "" && a.allReported(h.client) {
			a.addViolation("delivery", nil, "",
				"%s has a delivery of event %s, which is in no report", h.name, eventID)
		}
	}
}

// allReported: every job of the client has its report, so that its events are all known.
func (a *auditor) allReported(clientNumber int) bool {
	for i := range a.observed {
		if a.observed[i].client == clientNumber && a.observed[i].report == nil {
			return false
		}
	}
	return true
}

// deliveryRecords are the deliveries that the server lists, by event: one for each (G-FR-47).
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

// order: a listener hears of a job's events in their order; the tries of a later event begin when
// those of the earlier ones are over (G-FR-48). The same event may come again: at least once.
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
			a.addViolation("foreign", nil, t.job.ID,
				"%s heard of event %s, which is not in its report", h.name, r.eventID)
			continue
		case i < reached:
			a.addViolation("order", nil, t.job.ID, "%s heard of event %d after event %d", h.name, i,
				reached)
		case accepted[r.eventID]:
			a.result.repeated++
		}
		accepted[r.eventID] = accepted[r.eventID] || r.accepted
		reached = max(reached, i)
	}
}

// heard: every event was accepted, or the record says how far it is.
func (a *auditor) checkDelivered(h *receiver, t *observedJob,
	records map[string]*client.ForgeRunDelivery) {
	accepted, tried := map[string]bool{}, map[string]bool{}
	for _, r := range h.receipts[t.job.ID] {
		tried[r.eventID] = true
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
		case status == client.ForgeDelivered && !accepted[e.ID]:
			a.addViolation("delivery", nil, t.job.ID,
				"event %d (%s) is recorded as delivered, and %s has not accepted it", i, e.Name,
				h.name)
		case accepted[e.ID] && status == client.ForgeExhausted:
			a.addViolation("delivery", nil, t.job.ID,
				"event %d (%s) is recorded as given up, and %s has accepted it", i, e.Name, h.name)
		case accepted[e.ID]:
		case h.behavior == behaviorAccepts || h.behavior == behaviorSlow:
			a.addViolation("undelivered", nil, t.job.ID,
				"%s has not heard of event %d (%s), recorded as %q", h.name, i, e.Name, status)
		case status == client.ForgeExhausted && tried[e.ID]:
			a.result.givenUp++
		case h.behavior == behaviorNeverAccepts && status == client.ForgePending:
			// the next try of it, or of an earlier one, is far away
			a.result.pending++
		default:
			a.addViolation("undelivered", nil, t.job.ID,
				"%s has not accepted event %d (%s), recorded as %q", h.name, i, e.Name, status)
		}
	}
}
