// Package move copies everything that a store has to a store on the other kind of database, while
// no server runs on either. Each database opens its own [Database]; this package has the order of
// the steps and knows no driver.
//
//	check      no node runs on either, the tables are alike, nothing waits that the target lacks
//	mark       the source gets an id of the move, the target the same id
//	copy       table by table, in batches; each is one transaction with the key it has come to
//	numbers    what comes later gets numbers above all that were ever given
//	verify     each table is read on both databases: as many rows, and the same checksum
//	close      the source is marked as moved, and then the mark of the target is removed
//
// A move that is killed is run again and goes on behind the last batch. The marks are records of a
// kind of their own, which [CheckOpen] looks for when a server starts:
//
//	                 source     target
//	while it runs    outgoing   incoming: no server starts
//	at its end       moved: no server starts
//
// So at no time do two databases serve the same jobs. A server that is started on the source of a
// move that was given up works as before; where the move is run again after that, the checksums
// show that the source has changed.
//
// Rows that are bound to processes and places stay: the terms of leaders, and records of the kinds
// in [Config.SkipKinds].
package move
