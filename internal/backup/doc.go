// Package backup has the form of a backup: a directory of files with their checksums. It knows
// nothing of the contents of the files.
//
//	backup.json   what it is of; written last, so that a backup that did not end has none
//	SHA256SUMS    the checksum of every other file, as sha256sum -c reads them
//	…             the files, with access for their owner alone
//
// A restore copies the files to a staging directory within the new one, verifies each while it is
// read, and moves all to their places by renaming, the most important one last. A server refuses a
// directory that has the staging directory (see [HasStaging]).
package backup
