#!/bin/sh
# Specs of e2e_node.test with either kubelet directly on this machine: see ../lone/e2e-node.ts.
if [ $# -eq 0 ]; then
  # What a host without cgroup v2 or without its systemd's bus cannot be asked.
  failed=0
  sh "$0" --suite e2e-node --focus 'container runtime is temporarily down|Kubelet Cgroup Manager|PodOverhead cgroup' || failed=1
  sh "$0" --suite node-features --focus 'in use with systemd|GracefulNodeShutdown' \
    --focus '(MemoryQoS|Cgroup reconciliation|Pod Level Resources (\[|Fix)|OOMScoreAdj)' || failed=1
  exit $failed
fi
[ -x dist/sys ] || sh sys/build.sh dist/sys
exec node --disable-warning=ExperimentalWarning test/machine/lone/e2e-node.ts "$@"
