#!/bin/sh
# The tests of cgroups on this machine, and in a container whose topmost cgroup holds processes.
. test/machine/inside/check.sh
cgroups=/sys/fs/cgroup
check 'one hierarchy' "$(stat -f -c %T $cgroups)" cgroup2fs

step 'the tests of cgroups'
tests() { node --disable-warning=ExperimentalWarning --test "$@"; }
export NODELET_SYS=$PWD/dist/sys
[ -x "$NODELET_SYS" ] || sh sys/build.sh "$NODELET_SYS"
tests test/root/cgroups.test.ts test/root/node-cgroup.test.ts > /tmp/tests 2>&1; check 'on the machine' "status $?, $(grep -E '^(#|ℹ) (pass|skipped)' /tmp/tests | tr '\n' ' ')" 'status 0,*'
[ ! -s /tmp/tests ] || grep -qE '^(#|ℹ) fail 0' /tmp/tests || tail -n 40 /tmp/tests

step 'in a container: the topmost cgroup it sees holds its processes'
cat > /tmp/box.sh <<'BOX'
umount --lazy /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
before=$(grep -c . /sys/fs/cgroup/cgroup.procs)
node --disable-warning=ExperimentalWarning test/root/node-cgroup.test.ts; echo "test in it: $?"
echo "left inside: $(find /sys/fs/cgroup -mindepth 1 -type d | tr '\n' ' '); processes: $before then $(grep -c . /sys/fs/cgroup/cgroup.procs); handed on: '$(cat /sys/fs/cgroup/cgroup.subtree_control)'"
mount -o remount,ro,bind /sys/fs/cgroup
node --disable-warning=ExperimentalWarning --input-type=module -e "
  const { createCgroup } = await import(process.cwd() + '/node/io/cgroup.ts');
  await createCgroup({ version: 2, root: '/sys/fs/cgroup', hierarchies: ['/sys/fs/cgroup'] }, '/nodelet-shut/hub').catch((error) => console.log(String(error.message), '/', error.advice));"
BOX
mkdir $cgroups/box
for controller in $(cat $cgroups/cgroup.controllers); do echo "+$controller" > $cgroups/cgroup.subtree_control; done 2> /dev/null
sh -c "echo 0 > $cgroups/box/cgroup.procs; exec unshare --cgroup --mount --propagation private sh /tmp/box.sh" > /tmp/box.out 2>&1
cat /tmp/box.out
check 'a set has its place in it' "$(grep -c '^test in it: 0' /tmp/box.out)" 1
check 'as before afterwards' "$(grep -cE "^left inside: ; processes: ([0-9]+) then \1; handed on: ''" /tmp/box.out)" 1
check 'read-only is refused in one sentence' "$(grep -c '^making the cgroup .*mounted read-only' /tmp/box.out)" 1
rmdir $cgroups/box; check 'the container goes' "$?" 0

finish
