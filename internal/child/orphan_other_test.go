//go:build !linux

package child_test

// otherMain does nothing: the tests that need processes of their own are those of Linux.
func otherMain() {}
