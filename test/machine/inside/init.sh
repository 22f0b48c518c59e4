#!/bin/sh
# The first process where systemd is not: mounts what systemd would, works, and ends the machine.
[ -e /sys/fs/cgroup ] || mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mountpoint -q /run || mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
hostname machine
ip link set lo up
modules=/lib/modules/$(uname -r)
if ! [ -e "$modules" ]; then
  mkdir -p "$modules"
  mount -t hostfs -o "/usr/lib/uml/modules/$(uname -r)" none "$modules"
fi
# PID 1 stays in the topmost cgroup, as under systemd; the work gets one of its own.
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control; done
mkdir /sys/fs/cgroup/work
sh -c 'echo 0 > /sys/fs/cgroup/work/cgroup.procs; exec sh /exchange/work.sh'
sync
echo o > /proc/sysrq-trigger
sleep 10
