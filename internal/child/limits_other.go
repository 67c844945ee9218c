//go:build !linux

package child

// Apply does nothing, as only Linux has all the limits. The time limit of the parent remains.
func (l Limits) Apply() error { return nil }
