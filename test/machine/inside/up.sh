#!/bin/sh
# A set, and what cgroup v2 shows of it. One line a finding: "ok …" or "FAIL …".
# Every start of a program is slow here without KVM, so one kubectl watches the pods and its lines are read.
export KUBECONFIG=/var/lib/nodelet/default/admin.kubeconfig
. test/machine/inside/check.sh
cgroups=/sys/fs/cgroup
node=$cgroups/nodelet-default/node-1
dir=/var/lib/nodelet/default/nodes/node-1
of() { grep "^$1 " /tmp/pods | tail -n 1 | cut -d' ' -f"$2"; } # of POD FIELD
is() { [ "$(of "$1" "$2")" = "$3" ]; }
pod_cgroup() { find $node/kubepods -maxdepth 2 -type d -name "pod$(of "$1" 2)"; }
service() { awk -v name="$1" '$1 == name { print $2 }' $dir/init.state; }
replaced() { [ "$(service "$1")" != "$2" ] && [ "$(service "$1")" != 0 ]; }

step machine
uname -r; systemctl --version | head -n 1; containerd --version; runc --version | head -n 1
check 'one hierarchy' "$(stat -f -c %T $cgroups)" cgroup2fs
echo "controllers: $(cat $cgroups/cgroup.controllers); handed on by systemd: $(cat $cgroups/cgroup.subtree_control)"
./nodelet doctor || check doctor "status $?" 0

step up
cat examples/web.yaml > /tmp/all.yaml
echo --- >> /tmp/all.yaml
cat test/machine/inside/pods.yaml >> /tmp/all.yaml
[ -z "$(systemd-detect-virt | grep qemu)" ] || sed -i 's/replicas: 3/replicas: 1/' /tmp/all.yaml
# shellcheck disable=SC2086
./nodelet up /tmp/all.yaml ${NODELET_TEST_PROXY:+--proxy $NODELET_TEST_PROXY} --timeout 1200; check up "status $?" 'status 0'
[ "$failed" = 0 ] || tail -n 12 $dir/log/agent.log $dir/log/containerd.log
if [ ! -e $KUBECONFIG ]; then finish; fi
kubectl get pods --watch -o 'jsonpath={.metadata.name} {.metadata.uid} {.status.phase} {.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].lastState.terminated.reason}:{.status.containerStatuses[0].lastState.terminated.exitCode} {.status.containerStatuses[0].resources}{"\n"}' > /tmp/pods 2>&1 &
watcher=$!
eventually 300 grep -q ^limited /tmp/pods

step 'the cgroups of a node'
find $cgroups/nodelet-default -type d | sed "s|$cgroups||"
check "the node's cgroup holds no process itself" "$(wc -l < $node/cgroup.procs)" 0
check "the node's cgroup is no threaded one" "$(cat $node/cgroup.type)" domain
for at in $node $node/kubepods $node/kubepods/burstable $node/kubepods/besteffort; do
  check "handed on in ${at#$cgroups}" "$(cat $at/cgroup.subtree_control)" '*cpu*memory*pids*'
  echo "     weight $(cat $at/cpu.weight), memory.max $(cat $at/memory.max), pids.max $(cat $at/pids.max)"
done
check 'weight of the Burstable pods' "$(cat $node/kubepods/burstable/cpu.weight)" '[1-9]*'
check 'weight of BestEffort' "$(cat $node/kubepods/besteffort/cpu.weight)" 1

step 'a pod with limits, and one whose child eats more than it may'
eventually 300 is limited 3 Running; check 'limited runs' "$(of limited 3)" Running
pod=$(pod_cgroup limited)
container=$pod/$(of limited 5 | sed 's|containerd://||')
check 'its place' "${pod#$node}" '/kubepods/burstable/pod*'
check 'pod cpu.max' "$(cat $pod/cpu.max)" '50000 100000'
check 'pod memory.max' "$(cat $pod/memory.max)" 67108864
echo "     pod cpu.weight $(cat $pod/cpu.weight), pids.max $(cat $pod/pids.max)"
check 'container cpu.max' "$(cat $container/cpu.max)" '50000 100000'
check 'container memory.max' "$(cat $container/memory.max)" 67108864
check 'container memory.oom.group' "$(cat $container/memory.oom.group)" 1
echo "     container cpu.weight $(cat $container/cpu.weight), swap.max $(cat $container/memory.swap.max 2>&1), min $(cat $container/memory.min), low $(cat $container/memory.low)"
echo "     resources in the status: $(grep '^limited ' /tmp/pods | tail -n 1 | cut -d' ' -f7-)"
eventually 300 is eater 4 1
check 'over its limit all of a container dies' "$(of eater 4) $(of eater 6)" '1 OOMKilled:137'
at=$(pod_cgroup sure); check 'a Guaranteed pod stands beside the classes' "${at#$node}" '/kubepods/pod*'

step 'usage, exec'
summary=$(kubectl get --raw /api/v1/nodes/node-1/proxy/stats/summary)
check '/stats/summary tells working sets' "$(echo "$summary" | grep -o workingSetBytes | wc -l)" '[1-9]*'
check '/stats/summary names the pod' "$(echo "$summary" | grep -c '"limited"')" '[1-9]*'
check exec "$(kubectl exec limited -- cat /proc/self/cgroup)" '0::/*'

step 'the agent is killed'
restarts=$(for name in limited sure eater; do echo "$name=$(of $name 4):$(of $name 5)"; done)
was=$(service agent)
./nodelet exec -- kill -9 "$was"
eventually 120 replaced agent "$was"; check 'the agent runs again' "$was then $(service agent)" '* then [1-9]*'
lines=$(wc -l < $dir/log/agent.log)
sleep 120
check 'no container restarted' "$(for name in limited sure eater; do echo "$name=$(of $name 4):$(of $name 5)"; done)" "$restarts"
echo "     the new agent wrote $(($(wc -l < $dir/log/agent.log) - lines)) lines since"
address=$(kubectl get service web -o 'jsonpath={.spec.clusterIP}')
check 'the Service answers' "$(timeout 60 bash -c "exec 3<> /dev/tcp/$address/80; printf 'GET / HTTP/1.0\r\n\r\n' >&3; head -n 1 <&3" | tr -d '\r')" 'HTTP/1.* 200*'

step 'the end of a pod'
kubectl delete pod limited --wait=false
eventually 200 sh -c "! [ -e $pod ]"; check "its cgroup went" "$(ls -d $pod 2>&1)" '*No such file*'
kill $watcher

step 'what the logs warn of'
grep -hE '^[WE][0-9]|level=(warning|error)' $dir/log/agent.log $dir/log/containerd.log | sed -E 's/^([WE])[0-9]+ [0-9:.]+ +[0-9]+/\1/; s/time="[^"]*" //' | cut -c1-260 | sort | uniq -c | sort -rn | head -n 30

step down
./nodelet down; check down "status $?" 'status 0'
check 'no cgroup stays' "$(find $cgroups -maxdepth 3 -name '*nodelet*' -o -maxdepth 3 -name 'kubepods*' | grep -v /nodelet-work.service)" ''
check 'no link stays' "$(ip -o link | grep -c nodelet)" 0
check 'no process stays' "$(ps -eo args | grep -cE '[n]odelet.mjs|^[^ ]*containerd')" 0

finish
