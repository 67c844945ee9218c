#!/bin/sh
# Runs the server of $MILLRACE_BINARY with few open files.
ulimit -n 256
exec "$MILLRACE_BINARY" "$@"
