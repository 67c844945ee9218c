package handler

import "context"

// Default takes manifests as they are (FB-038). Others embed it and change what they care for.
type Default struct{}

// Prepare implements Handler.
func (Default) Prepare(_ context.Context, _ Job, m Manifest) (Manifest, error) { return m, nil }

// Tasks implements Handler.
func (Default) Tasks(_ context.Context, j Job, m Manifest) ([]Task, error) {
	tasks := make([]Task, len(m.Resources))
	for i, r := range m.Resources {
		tasks[i] = FromResource(j, r)
	}
	return tasks, nil
}

// Finalize implements Handler.
func (Default) Finalize(context.Context, Summary) error { return nil }
