// Command bench measures Millrace beside its peers and beside the floor under each of them: the
// same jobs, the same machine, the same minute.
//
// A case is a named load (case.go holds the one list). A bench runs one warm-up round and then
// several measured rounds, and in every round each case once, so that a noisy neighbour, a
// checkpoint or a warming processor falls on all of them alike. A run answers one or more phases
// (insert, work, ...), each with its number of jobs and its time. The report gives per phase the
// median rate, the lowest and highest, and the ratio to a reference case, computed round by round.
//
// The program talks to 127.0.0.1 only, creates its own database and its own processes of peers, and
// removes both when it ends. Every load is bounded in count and in time.
package main
