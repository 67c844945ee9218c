// Package disk adds to package os what code that keeps files of its own needs: a lock that keeps a
// second process out of a directory, a fingerprint by which a directory differs from its copies,
// and syncing of directory entries, so that a file that was created or renamed is found again after
// a power failure.
package disk
