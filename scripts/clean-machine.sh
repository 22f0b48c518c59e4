#!/bin/sh
# Runs the README's two commands on a clean clone in a debootstrap root of Debian 12 that has Node, npm and apt and
# nothing else of ours. usage: clean-machine.sh ROOT [up|test|all] [SUITES];
# ROOT is made when it is not there, and kept.
set -eu
[ "$(id -u)" = 0 ] || { echo "clean-machine: this needs root" >&2; exit 1; }
root=$1
what=${2:-up}
suites=${3:-}
here=$(cd "$(dirname "$0")/.." && pwd)
command -v debootstrap >/dev/null || { echo "clean-machine: apt-get install debootstrap first" >&2; exit 1; }
mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | head -n 1)
if [ ! -e "$root/.done" ]; then
  [ -e "$root/etc/debian_version" ] || debootstrap --variant=minbase --include=ca-certificates,git,procps bookworm "$root" "$mirror"
  cp /etc/apt/sources.list "$root/etc/apt/" 2>/dev/null || true
  cp -r /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/apt/trusted.gpg.d "$root/etc/apt/" 2>/dev/null || true
  cp -r /usr/share/keyrings "$root/usr/share/" 2>/dev/null || true
  # This machine's own Node and npm, which only install the pinned Node, and their configuration.
  cp "$(readlink -f "$(command -v node)")" "$root/usr/bin/node"
  modules=$(dirname "$(dirname "$(dirname "$(readlink -f "$(command -v npm)")")")")
  mkdir -p "$root/usr/lib/node_modules"
  cp -r "$modules/npm" "$root/usr/lib/node_modules/"
  ln -sf ../lib/node_modules/npm/bin/npm-cli.js "$root/usr/bin/npm"
  for file in /usr/etc/npmrc /root/.npmrc /etc/npmrc; do [ ! -f "$file" ] || { mkdir -p "$root$(dirname "$file")" && cp "$file" "$root$file"; }; done
  cp -r /etc/ssl/certs "$root/etc/ssl/" && cp -r /usr/local/share/ca-certificates "$root/usr/local/share/" 2>/dev/null || true
  touch "$root/.done"
fi
rm -rf "$root/root/nodelet"
git clone -q "$here" "$root/root/nodelet"
cp /etc/resolv.conf "$root/etc/resolv.conf"
# What of this machine's surroundings the packages' and npm's downloads need.
settings=$(env | grep -iE '^(https?_proxy|no_proxy|npm_config_[a-z_]*|ssl_cert_file|node_extra_ca_certs)=' || true)
run() {
  # Mounts and processes of its own: what is mounted and started for the root goes with it. The root is the namespace's
  # own, as on a machine; a chroot is left again by whoever enters the namespaces of a process in it.
  unshare --mount --propagation private --pid --fork --kill-child sh -eu -c '
    root=$1 settings=$2 command=$3
    mount --bind "$root" "$root"
    cd "$root"
    mount --rbind /dev dev
    mount -t proc proc proc
    mount --rbind /sys sys
    mount -t tmpfs -o mode=755 tmpfs run
    mount -t tmpfs -o mode=1777 tmpfs tmp
    pivot_root . mnt
    set -f; IFS="
"
    exec chroot . env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb $settings \
      sh -c "umount -l /mnt; cd /root/nodelet; $command"
  ' sh "$root" "$settings" "$1"
}
status=0
case $what in up | all) run './nodelet up examples/web.yaml && ./nodelet status && ./nodelet exec -- ls / && ./nodelet down' || status=$? ;; esac
case $what in test | all) run "./nodelet test $suites" || status=$? ;; esac
exit $status
