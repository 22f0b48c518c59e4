#!/bin/sh
# Either kubelet with either cgroup driver directly on this machine: see ../lone. KUBELETS="upstream:systemd …" chooses.
[ -x dist/sys ] || sh sys/build.sh dist/sys
# shellcheck disable=SC2086
exec node --disable-warning=ExperimentalWarning test/machine/lone/main.ts ${KUBELETS:-}
