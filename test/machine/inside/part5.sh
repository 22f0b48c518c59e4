#!/bin/sh
# Part 5 of the walkthroughs: what differs between cgroup v1 and v2 for a person. Runs on either; each tells its part.
. test/machine/inside/check.sh
name=${PART5_SET:-part5}
export KUBECONFIG=/var/lib/nodelet/$name/admin.kubeconfig
dir=/var/lib/nodelet/$name/nodes/node-1
containerd=
if [ -x "${NODELET_ASSETS:-}/containerd-2.4/containerd" ]; then containerd="--containerd $NODELET_ASSETS/containerd-2.4"; fi
service() { awk -v name="$1" '$1 == name { print $2 }' $dir/init.state; }
field() { kubectl get pod "$1" -o "jsonpath=$2"; }
running() { [ "$(field "$1" '{.status.phase}')" = Running ]; }
ended() { [ -n "$(field "$1" '{.status.containerStatuses[0].lastState.terminated.reason}')" ]; }
configure() { # configure JAVASCRIPT: changes `c`, the kubelet's configuration, and starts the agent again
  node -e "const fs = require('fs'); const f = '$dir/agent.json'; const c = JSON.parse(fs.readFileSync(f)); $1; fs.writeFileSync(f, JSON.stringify(c));"
  was=$(service agent)
  [ "$was" = 0 ] || ./nodelet exec --name "$name" -- kill -9 "$was"
}
replaced() { [ "$(service agent)" != "$was" ] && [ "$(service agent)" != 0 ]; }
eater() { # eater NAME: its child eats more than it may; the container's own process would live on
  cat << YAML
apiVersion: v1
kind: Pod
metadata: { name: $1, namespace: default }
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: m
      image: busybox:1.36
      command: [sh, -c, 'if [ -e /seen/it ]; then sleep 100000; fi; touch /seen/it; sh -c "x=a; while :; do x=\\\$x\\\$x; done"; echo child \$?; sleep 100000']
      volumeMounts: [{ name: seen, mountPath: /seen }]
      resources: { limits: { memory: 64Mi } }
  volumes: [{ name: seen, emptyDir: {} }]
YAML
}
requests() {
  cat << 'YAML'
apiVersion: v1
kind: Pod
metadata: { name: asks, namespace: default }
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: m
      image: busybox:1.36
      command: [sleep, '100000']
      resources: { requests: { cpu: 100m, memory: 64Mi }, limits: { memory: 128Mi } }
YAML
}

version=$(stat -f -c %T /sys/fs/cgroup)
step "up on $version"
{ requests; echo ---; eater all; } > /tmp/part5.yaml
# The pod `all` is Ready only between its deaths: what matters is looked at below.
./nodelet up /tmp/part5.yaml --name "$name" $containerd ${NODELET_TEST_PROXY:+--proxy $NODELET_TEST_PROXY} --timeout 900; check up "status $?" 'status 0'
[ "$failed" = 0 ] || tail -n 12 $dir/log/agent.log $dir/log/containerd.log
[ -e "$KUBECONFIG" ] || finish
runtime=$(kubectl get node node-1 -o 'jsonpath={.status.nodeInfo.containerRuntimeVersion}')
eventually 300 running asks

step '5.1: the request as the runtime reports it'
# On v2 as well: the walkthrough's 79m is what weight 4 reads back to, and 1.37.2 tells what the runtime says (seen by lone/).
check "5.1 on $runtime, $(runc --version | head -n 1)" "$(field asks '{.status.containerStatuses[0].resources.requests.cpu}')" 100m
echo "     allocated: $(field asks '{.status.containerStatuses[0].allocatedResources.cpu}'), weight: $(cat /sys/fs/cgroup/nodelet-$name/node-1/kubepods/burstable/pod$(field asks '{.metadata.uid}')/cpu.weight 2>&1)"
[ "$version" != cgroup2fs ] || check '5.1 the weight of the pod' "$(cat /sys/fs/cgroup/nodelet-$name/node-1/kubepods/burstable/pod$(field asks '{.metadata.uid}')/cpu.weight)" 4

if [ "$version" = cgroup2fs ]; then
  step '5.2: over the memory limit'
  eventually 300 ended all
  check '5.2 all processes of the container end together' "$(field all '{.status.containerStatuses[0].lastState.terminated.reason}:{.status.containerStatuses[0].lastState.terminated.exitCode}')" OOMKilled:137
  configure 'c.singleProcessOOMKill = true'
  eventually 120 replaced
  eater one | kubectl apply -f - > /dev/null
  eventually 300 running one
  eventually 300 sh -c 'kubectl logs one 2> /dev/null | grep -q child'
  check '5.2 with singleProcessOOMKill only the child' "$(kubectl logs one | grep child) restarts $(field one '{.status.containerStatuses[0].restartCount}')" 'child 137 restarts 0'
else
  step '5.3: cgroup v1 must be allowed'
  lines=$(wc -l < $dir/log/agent.log)
  since() { tail -n "+$((lines + 1))" $dir/log/agent.log; }
  refused() { since | grep -q 'failCgroupV1'; }
  configure 'delete c.failCgroupV1'
  eventually 60 refused
  check '5.3 the agent does not start' "$(since | grep failCgroupV1 | head -n 1)" '*cgroup v1*failCgroupV1*'
  if [ -x "${NODELET_ASSETS:-}/kubelet" ]; then
    folder=$(mktemp -d)
    printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nenableServer: false\nhealthzPort: 0\noomScoreAdj: 0\ncontainerRuntimeEndpoint: unix://%s/none.sock\n' "$folder" > "$folder/config"
    timeout 60 unshare --net "$NODELET_ASSETS/kubelet" --config "$folder/config" --root-dir "$folder/root" --cert-dir "$folder/pki" > "$folder/log" 2>&1
    check "5.3 nor does upstream's" "$(grep '^E' "$folder/log" | tail -n 1)" "*$(since | grep -o 'kubelet is configured to not run[^.]*' | head -n 1)*"
    rm -rf "$folder"
  fi
  kubectl get --raw /api/v1/nodes/node-1/proxy/healthz > /tmp/part5.health 2>&1; check '5.3 its port is closed' "$?" '[1-9]*'
  configure 'c.failCgroupV1 = false'
  eventually 120 sh -c 'kubectl get --raw /api/v1/nodes/node-1/proxy/healthz > /dev/null 2>&1'; check '5.3 allowed, it starts again' "$?" 0
fi

step down
./nodelet down --name "$name"; check down "status $?" 'status 0'
finish
