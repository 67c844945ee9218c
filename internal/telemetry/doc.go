// Package telemetry is what a process tells of itself: the keys of log lines,
// the loggers, the metric registries and how they are served, the observer of
// the store, the depth of queues, and the watch that requests are timed by.
package telemetry
