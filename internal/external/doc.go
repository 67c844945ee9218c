// Package external calls handlers that are outside of this program: a command, which is started for
// each call, or a service that is called over HTTP. The queues of TaskFlow and the job types of
// FetchBox have the same Settings for them; each supplies the input and interprets the answer.
//
//	           the call goes to          the answer is             the call has failed by
//	exec       standard input            standard output           exit code, time, output
//	http       the body of a POST        the body of a 2xx         status, time, connection
//
// A call may be repeated: its answer may be lost, or its node may die. Whoever is called recognises
// a repetition by the names of the call (Call.Names), which both kinds get: as variables of the
// environment, or as headers.
package external
