#!/bin/sh
# Runs in the machine: does what the host leaves in /exchange as N.job, one after the other. Output goes to N.log, the
# exit status to N.status; N.end stops a job, "end" the machine.
cd /exchange || exit 1
# The images that were made on the host, if there are some.
mkdir -p /images
share=$(sed -n 's/.*nodelet\.images=\([^ ]*\).*/\1/p' /proc/cmdline)
if [ -n "$share" ]; then mount -t hostfs -o "ro,$share" none /images
else mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro images /images 2> /dev/null; fi
[ ! -e kubectl ] || install -m 755 kubectl /usr/local/bin/kubectl
{
  echo "kernel: $(uname -r)"
  echo "init: $(cat /proc/1/comm)"
  echo "controllers: $(cat /sys/fs/cgroup/cgroup.controllers)"
  echo "uptime: $(cut -d' ' -f1 /proc/uptime)"
} > ready.part
mv ready.part ready
while [ ! -e end ]; do
  for job in *.job; do
    [ -e "$job" ] || continue
    name=${job%.job}
    [ ! -e "$name.status" ] || continue
    setsid sh "$job" > "$name.log" 2>&1 < /dev/null &
    pid=$!
    while kill -0 $pid 2> /dev/null; do
      [ ! -e "$name.end" ] || kill -s KILL -- "-$pid"
      sleep 0.5
    done
    wait $pid
    echo $? > "$name.status.part"
    mv "$name.status.part" "$name.status"
  done
  sleep 0.5
done
