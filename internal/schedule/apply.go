package schedule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
)

// settingsPause is how long to wait before the settings are applied again, where the store did not
// answer or a contract has refused a request.
const settingsPause = 5 * time.Second

// applySettings makes the stored schedules those that the settings define, besides those of
// operators (SC-007). One that cannot be made is tried again until ctx ends.
func (s *Schedules) applySettings(ctx context.Context) {
	loop := outage.Loop{Log: s.Log, Name: "schedules of the settings"}
	loop.Until(ctx, settingsPause, s.ApplySettings)
}

// ApplySettings makes, changes and removes the schedules of the settings, each by itself.
func (s *Schedules) ApplySettings(ctx context.Context) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.Settings)) {
		if err := s.applyOne(ctx, name, *s.Settings[name]); err != nil {
			errs = append(errs, fmt.Errorf("schedules.%s: %w", name, err))
		}
	}
	return errors.Join(append(errs, s.removeOthers(ctx))...)
}

// applyOne makes a stored schedule the one of the settings. It stays paused if it is.
func (s *Schedules) applyOne(ctx context.Context, name string, d Definition) error {
	stored, err := s.Get(ctx, name)
	if job.IsKind(err, job.NotFound) {
		_, err = s.Create(ctx, Schedule{Name: name, Definition: d, FromSettings: true}, nil)
		if !job.IsKind(err, job.Conflict) {
			return s.logApplied("the settings have made a schedule", name, err)
		}
		stored, err = s.Get(ctx, name) // another node has made it at the same moment
	}
	if err != nil {
		return err
	}
	if stored.FromSettings && stored.Definition.Equal(&d) {
		return nil
	}
	_, err = s.Change(ctx, name, func(one *Schedule) error {
		one.Definition, one.FromSettings = d, true
		return nil
	}, nil)
	return s.logApplied("the settings have changed a schedule", name, err)
}

// logApplied logs what the settings have done to a schedule, unless it failed, and returns the
// error.
func (s *Schedules) logApplied(what, name string, err error) error {
	if err != nil {
		return err
	}
	s.Log.Info(what, "schedule", name)
	return nil
}

// listBatch is how many schedules are read at once.
const listBatch = 200

// removeOthers removes the schedules that settings have defined and no longer do.
func (s *Schedules) removeOthers(ctx context.Context) error {
	for after := ""; ; {
		page, err := s.List(ctx, after, listBatch)
		if err != nil {
			return err
		}
		for _, one := range page {
			after = one.Name
			if _, defined := s.Settings[one.Name]; defined || !one.FromSettings {
				continue
			}
			err := s.Remove(ctx, one.Name, true, nil)
			if job.IsKind(err, job.NotFound) {
				continue // another node has removed it
			}
			err = s.logApplied("the settings have removed a schedule", one.Name, err)
			if err != nil {
				return err
			}
		}
		if len(page) < listBatch {
			return nil
		}
	}
}
