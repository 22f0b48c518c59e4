#!/bin/sh
# The first process where the kernel was told so: under user-mode-linux, before systemd, what that kernel lacks is made up
# for; else there is no systemd at all, and this mounts what it would, works, and ends the machine.
modules=/lib/modules/$(uname -r)
if ! [ -e "$modules" ]; then
  mkdir -p "$modules"
  mount -t hostfs -o "/usr/lib/uml/modules/$(uname -r)" none "$modules"
  # It tells no clock speed, without which upstream's kubelet does not start.
  { cat /proc/cpuinfo; echo 'cpu MHz		: 2000.000'; } > /etc/cpuinfo
  mount --bind /etc/cpuinfo /proc/cpuinfo
  # Its nf_tables knows neither IPv4 nor IPv6: what writes iptables must write the older tables.
  for name in iptables ip6tables; do update-alternatives --quiet --set $name /usr/sbin/$name-legacy; done
fi
if grep -qw nodelet.systemd /proc/cmdline; then
  # The shares are here already, and by another way than the unit would take.
  mkdir -p /etc/systemd/system/nodelet-work.service.d
  printf '[Service]\nExecStartPre=\nStandardOutput=null\nStandardError=null\nTTYPath=\n' > /etc/systemd/system/nodelet-work.service.d/shares.conf
  exec /sbin/init
fi
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
# PID 1 stays in the topmost cgroup, as under systemd; the work gets one of its own.
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control; done
mkdir /sys/fs/cgroup/work
sh -c 'echo 0 > /sys/fs/cgroup/work/cgroup.procs; exec sh /exchange/work.sh'
sync
echo o > /proc/sysrq-trigger
sleep 10
