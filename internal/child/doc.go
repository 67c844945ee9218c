// Package child runs programs in processes of their own, with limits: the pictures of Images in a
// child of the server's own binary, and the commands that operators set as handlers.
//
//	Run ── start ──▶ the program, in a process group of its own
//	 │                 ends by itself ─────────────────────┐
//	 │ ctx ends, time or output beyond the limit           ▼
//	 └──▶ SIGTERM to the group, or SIGKILL at once ──▶ SIGKILL to what is left of the group
//
// The kernel of Linux kills the program when this process ends, however it ends. What the program
// has started and taken out of its group is beyond reach.
//
// Limits that the kernel enforces are set by a process on itself. A program that knows nothing of
// them is started through Exec, the hidden command Subcommand of the server's binary: it sets them
// and becomes the program.
package child
