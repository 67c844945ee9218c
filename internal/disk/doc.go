// Package disk holds what everything that keeps files of its own needs beside package os: a lock
// that keeps a second process out of a directory, and directory entries that are on the disk.
package disk
