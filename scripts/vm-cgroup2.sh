#!/bin/sh
# Boots Debian 12 with systemd and cgroup v2 in a virtual machine and runs test/vm/inside.sh there on this tree's last
# commit. Without KVM (or with VM_ACCELERATOR=tcg) it takes about half an hour.
# usage: vm-cgroup2.sh DIR; DIR/root is made once and kept.
set -eu
[ "$(id -u)" = 0 ] || { echo "vm-cgroup2: this needs root" >&2; exit 1; }
[ $# = 1 ] || { echo "usage: vm-cgroup2.sh DIR" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
root=$dir/root
here=$(cd "$(dirname "$0")/.." && pwd)
for program in debootstrap qemu-system-x86_64 mke2fs kubectl; do
  command -v $program > /dev/null || { echo "vm-cgroup2: $program is missing (apt-get install debootstrap qemu-system-x86 e2fsprogs; kubectl 1.30 or later)" >&2; exit 1; }
done

if [ ! -e "$root/.done" ]; then
  mirror=$(apt-get indextargets --format '$(SITE)' 2> /dev/null | head -n 1)
  [ -e "$root/etc/debian_version" ] || debootstrap --variant=minbase --include=ca-certificates bookworm "$root" "$mirror"
  cp /etc/resolv.conf "$root/etc/"
  cp -r /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/apt/trusted.gpg.d "$root/etc/apt/" 2> /dev/null || true
  cp -r /usr/share/keyrings "$root/usr/share/" 2> /dev/null || true
  mount -t proc proc "$root/proc"
  trap 'umount "$root/proc"' EXIT
  printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
  chmod 755 "$root/usr/sbin/policy-rc.d"
  DEBIAN_FRONTEND=noninteractive chroot "$root" sh -ec '
    apt-get update -q
    apt-get install -y --no-install-recommends systemd systemd-sysv dbus kmod udev iproute2 nftables iptables conntrack containerd runc \
      containernetworking-plugins busybox-static catatonit gcc libc6-dev git procps initramfs-tools linux-image-cloud-amd64'
  umount "$root/proc"
  trap - EXIT
  touch "$root/.done"
fi

# This tree's last commit, with what a first start would download: the machine has no network.
rm -rf "$root/root/nodelet"
git clone -q "$here" "$root/root/nodelet"
cp -a "$here/.tools" "$here/node_modules" "$root/root/nodelet/"
"$root/root/nodelet/nodelet" doctor > /dev/null || true
mkdir -p "$root/root/nodelet/dist"
sh "$root/root/nodelet/sys/build.sh" "$root/root/nodelet/dist/sys"
cp "$(readlink -f "$(command -v "${KUBECTL:-kubectl}")")" "$root/usr/local/bin/kubectl"
echo vm > "$root/etc/hostname"
: > "$root/etc/fstab"
cat > "$root/etc/systemd/system/inside.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh /root/nodelet/test/vm/inside.sh
ExecStopPost=/usr/bin/systemctl --no-block poweroff
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
TimeoutStartSec=infinity
UNIT
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -sf ../inside.service "$root/etc/systemd/system/multi-user.target.wants/inside.service"
for unit in containerd.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer serial-getty@ttyS0.service getty@tty1.service; do
  ln -sf /dev/null "$root/etc/systemd/system/$unit"
done

rm -f "$dir/disk"
truncate -s 6G "$dir/disk"
mke2fs -q -F -t ext4 -E root_owner=0:0 -d "$root" "$dir/disk"
[ -w /dev/kvm ] && accelerator=kvm || accelerator=tcg,thread=multi
accelerator=${VM_ACCELERATOR:-$accelerator}
timeout "${VM_SECONDS:-3600}" nice -n 10 qemu-system-x86_64 -accel "$accelerator" -smp 2 -m 3072 -nographic -no-reboot -nic none \
  -kernel "$root"/boot/vmlinuz-* -initrd "$root"/boot/initrd.img-* \
  -append 'root=/dev/vda rw console=ttyS0 quiet systemd.show_status=false' \
  -drive "file=$dir/disk,format=raw,if=virtio,cache=unsafe" < /dev/null | sed -u 's|\r||g' | tee "$dir/console"
rm -f "$dir/disk"
grep -q '^vm: 0 failed' "$dir/console"
