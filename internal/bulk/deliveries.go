package bulk

import (
	"context"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// Deliveries of a webhook are made once more a batch at a time, in one transaction, so that those
// of one chain stay in their order. A replay has an id that is made of its delivery: what a node
// that was killed has stored is neither stored again nor counted twice.

// webhooks returns the webhooks of the node; nil where no contract has any.
func (b *Bulk) webhooks() *webhook.Webhooks {
	for _, c := range b.Contracts {
		if c.Webhooks != nil {
			return c.Webhooks
		}
	}
	return nil
}

// replayDeliveries makes the deliveries of a batch once more.
func (b *Bulk) replayDeliveries(ctx context.Context, o *Operation, items []item) []result {
	results := make([]result, len(items))
	numbers, ids := map[job.ID]int64{}, []job.ID{}
	for i, it := range items {
		results[i] = result{item: it}
		if it.changed {
			results[i].err = errChanged
			continue
		}
		numbers[it.job.ID], ids = it.number, append(ids, it.job.ID)
	}
	err := b.webhooks().ReplayEach(ctx, o.Jobs.Owner, ids,
		func(w engine.RecordWriter, replayed []job.ID) error {
			// A batch of deliveries has one slot: another node that does the same batch waits here.
			if err := w.Lock(slotLock(o.ID, 0)); err != nil {
				return err
			}
			marks := make([]mark, len(replayed))
			for i, id := range replayed {
				marks[i] = mark{Number: numbers[id]}
			}
			if err := b.mayMark(w, o, marks[0].Number); err != nil {
				return err
			}
			return writeMarks(w, o, marks...)
		})
	for i := range results {
		if !results[i].changed {
			results[i].err = err
		}
	}
	return results
}

// sequencesOf returns the indexes of items, those together that are done one after another.
func sequencesOf(items []item) (sequences [][]int) {
	var deliveries []int
	for i, it := range items {
		if it.deadLetter != nil && it.deadLetter.Job.ID.JobType == webhook.Name {
			deliveries = append(deliveries, i)
			continue
		}
		sequences = append(sequences, []int{i})
	}
	if len(deliveries) > 0 {
		sequences = append(sequences, deliveries)
	}
	return sequences
}
