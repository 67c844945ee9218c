// Package series keeps what the queues have done over time: jobs and attempts, how long they
// waited and ran, how many were ready, and the requests of each contract (AD-060).
//
// Each node counts in memory and every ten seconds writes what it has counted, in one small
// transaction, into the steps that hold that moment:
//
//	step   10 s ├─┤              kept for 2 h
//	  1 m, 5 m  ├──────────┤     kept for 48 h
//	        1 h ├─────────────── kept for 90 d
//
// A step is one record of the totals of all job types and one for each job type with its queues,
// of one node: a node adds to its steps in memory and writes each of them as a whole, so nothing
// is read to be rolled up, no two nodes write the same record, and the steps of several nodes, or
// of a node before and after its restart, add up when they are read. Records expire by themselves.
//
// A node that has counted nothing and sees no ready jobs writes nothing. A node that is killed
// loses what it has counted since it wrote last.
package series
