#!/bin/sh
# Memory, resources of whole pods and OOM scores with either kubelet: see ../lone/memory.ts. MEMORY="upstream:systemd …" chooses.
[ -x dist/sys ] || sh sys/build.sh dist/sys
# shellcheck disable=SC2086
exec node --disable-warning=ExperimentalWarning test/machine/lone/memory.ts ${MEMORY:-}
