#!/bin/sh
# PID 1 of the user-mode kernel: mounts what systemd would, takes in the host's folders, works, and ends the machine.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t devtmpfs devtmpfs /dev 2> /dev/null
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
ln -sf /proc/self/fd /dev/fd
hostname machine
ip link set lo up
modules=/lib/modules/$(uname -r)
mkdir -p "$modules" /exchange /assets
mount -t hostfs -o "/usr/lib/uml/modules/$(uname -r)" none "$modules"
for word in $(cat /proc/cmdline); do
  case $word in
    nodelet.exchange=*) mount -t hostfs -o "${word#*=}" none /exchange ;;
    nodelet.assets=*) mount -t hostfs -o "ro,${word#*=}" none /assets ;;
  esac
done
# PID 1 stays in the topmost cgroup, as under systemd; the work gets one of its own.
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control; done
mkdir /sys/fs/cgroup/work
sh -c 'echo 0 > /sys/fs/cgroup/work/cgroup.procs; exec /usr/local/sbin/nodelet-work'
sync
echo o > /proc/sysrq-trigger
sleep 10
