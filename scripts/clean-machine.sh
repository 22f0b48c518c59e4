#!/bin/sh
# Runs the README's two commands on a clean clone in a debootstrap root of Debian 12 that has Node, npm and apt and
# nothing else of ours. usage: clean-machine.sh ROOT [up|test|all]; ROOT is made when it is not there, and kept.
set -eu
[ "$(id -u)" = 0 ] || { echo "clean-machine: this needs root" >&2; exit 1; }
root=$1
what=${2:-up}
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
run() {
  # A mount namespace of its own: what is mounted for the root goes with it.
  unshare --mount --propagation private sh -c '
    mount --bind "$1" "$1" && mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" && mount --rbind /sys "$1/sys" && mount -t tmpfs tmpfs "$1/run" && mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
    shift; root=$0; cd /; exec chroot "$root" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb '"$(env | grep -iE '^(https?_proxy|no_proxy|npm_config_[a-z_]*|ssl_cert_file|node_extra_ca_certs)=' | sed "s/.*/'&'/" | tr '\n' ' ')"' sh -c "$1"
  ' "$root" "$root" "$1"
}
status=0
case $what in up | all) run 'cd /root/nodelet && ./nodelet up examples/web.yaml && ./nodelet status && ./nodelet down' || status=$? ;; esac
case $what in test | all) run 'cd /root/nodelet && ./nodelet test' || status=$? ;; esac
exit $status
