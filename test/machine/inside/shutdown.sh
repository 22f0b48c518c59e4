#!/bin/sh
# Our agent with systemd's driver, and a shutdown that logind tells of: see ../lone/shutdown.ts.
[ -x dist/sys ] || sh sys/build.sh dist/sys
exec node --disable-warning=ExperimentalWarning test/machine/lone/shutdown.ts "$@"
