/** What each image must have, as commands that are run inside it. */

export interface ImageCheck {
  /** What it shows. */
  readonly what: string;
  /** Arguments of the program; a text is given to the image's own `sh -c`. */
  readonly run: string | readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** User ID, group ID; absent means the image's. */
  readonly user?: number;
  readonly exit?: number;
  readonly output?: RegExp;
}

/** Starts `server` in the background, waits until `ready` succeeds, then runs `then`. */
const serving = (server: string, ready: string, then: string): string =>
  `${server} & n=0; until ${ready} >/dev/null 2>&1; do n=$((n+1)); [ $n -gt 100 ] && exit 99; sleep 0.1; done; ${then}; code=$?; kill $!; exit $code`;

const WORDS_ERRORS: ImageCheck = { what: 'sh words errors as busybox does', run: 'echo x > /proc/none/x || true', output: /can't create \/proc\/none\/x/ };
const KEEPS_NAMES: ImageCheck = { what: 'sh keeps environment names such as data-1', run: 'env', env: { 'data-1': 'kept' }, output: /^data-1=kept$/m };

const AGNHOST: readonly ImageCheck[] = [
  KEEPS_NAMES,
  { what: '/agnhost runs', run: ['/agnhost', '--version'], output: /version 2\.66/ },
  { what: '/agnhost-2 is the same program', run: ['/agnhost-2', '--help'], output: /Usage:/ },
  { what: 'certificate and key for lifecycle hooks', run: 'grep -c CERTIFICATE /localhost.crt && grep -c KEY /localhost.key', output: /^2\n2$/m },
  { what: '/uploads', run: 'test -d /uploads' },
  { what: 'bash', run: ['bash', '--version'], output: /GNU bash/ },
  { what: 'curl', run: ['curl', '--version'], output: /^curl \d.*\n.*http/s },
  { what: 'nc is the one of OpenBSD', run: 'nc -h 2>&1', output: /OpenBSD/, exit: 0 },
  { what: 'dig', run: ['dig', '-v'], output: /DiG 9/ },
  { what: 'host', run: 'host -V 2>&1', output: /host 9/ },
  { what: 'nslookup', run: ['nslookup', '-version'], output: /nslookup 9/ },
  { what: 'ss', run: ['ss', '-V'], output: /ss utility/ },
  { what: 'ip', run: ['ip', '-V'], output: /ip utility/ },
  { what: 'iperf at /usr/local/bin', run: '/usr/local/bin/iperf -v 2>&1', exit: 1, output: /iperf version 2/ },
  { what: 'socat', run: ['socat', '-V'], output: /socat version/ },
  { what: 'ipcs and ipcmk', run: 'ipcs -m && ipcmk -V', output: /Shared Memory Segments[\s\S]*util-linux/ },
  { what: 'nsenter of util-linux', run: 'nsenter -V', output: /util-linux/ },
  { what: 'wget with -T', run: 'wget --help', output: /--timeout/ },
  { what: '/coredns', run: ['/coredns', '-version'], output: /^CoreDNS-\d/ },
  { what: 'the user and its second group', run: 'id user-defined-in-image', output: /uid=1000.*50000\(group-defined-in-image\)/ },
  {
    what: 'netexec answers curl and wget',
    run: serving(
      '/agnhost netexec --http-port=8080',
      'curl -fs localhost:8080/',
      "curl -fs 'localhost:8080/echo?msg=hello' && wget -T 5 -qO- localhost:8080/hostname",
    ),
    output: /hello/,
  },
  {
    what: 'its registry wants a password and serves pause',
    run: serving(
      '/agnhost fake-registry-server --private',
      'curl -s localhost:5000/v2/',
      "curl -s -o /dev/null -w '%{http_code}\\n' localhost:5000/v2/pause/manifests/testing; " +
        'index=$(curl -fsL -u user:password localhost:5000/v2/pause/manifests/testing); echo $index | grep -o \'"digest":"[^"]*\' | cut -d\'"\' -f4 > /tmp/d; ' +
        'curl -fsL -u user:password localhost:5000/v2/pause/manifests/$(cat /tmp/d) > /tmp/m; ' +
        'layer=$(grep -o \'tar+gzip","digest":"[^"]*\' /tmp/m | cut -d\'"\' -f5); curl -fs -u user:password localhost:5000/v2/pause/blobs/$layer | tar tzf -',
    ),
    output: /^401\n(.|\n)*\.\/pause$/m,
  },
];

const NGINX: readonly ImageCheck[] = [
  KEEPS_NAMES,
  {
    what: 'nginx serves its page and logs to standard output',
    run: serving("nginx -g 'daemon off;'", 'wget -qO- localhost', 'wget -qO- localhost'),
    output: /Welcome to nginx[\s\S]*/,
  },
];

const BUSYBOX: readonly ImageCheck[] = [
  KEEPS_NAMES,
  WORDS_ERRORS,
  {
    what: 'the applets that tests call',
    run: 'for p in awk basename cat chmod cp cut date dd echo env expr find grep head hostname id kill ls mkdir mknod mount mv nc nslookup ping printf ps pwd rm route sed seq sh sleep sort stat tail tar tee timeout top touch tr true umount uname usleep vi wc wget whoami xargs; do command -v $p >/dev/null || echo missing $p; done; /bin/echo -n done; /bin/true',
    output: /^done$/,
  },
  { what: 'true and echo by their paths', run: '/bin/true && /bin/echo -n OK', output: /^OK$/ },
  {
    what: 'httpd and wget, with and without -T',
    run: serving(
      'httpd -f -p 8080 -h /etc',
      'wget -qO- localhost:8080/group',
      'wget -T 5 -qO- localhost:8080/group && wget -T5 -q -O - http://127.0.0.1:8080/group',
    ),
    output: /root:x:0:[\s\S]*root:x:0:/,
  },
  { what: 'fractions of a second', run: 'sleep 0.1 && usleep 1000' },
  { what: 'the time with its milliseconds', run: "nmeter -d0 '%3t' | head -n1", output: /^\d\d:\d\d:\d\d\.\d{3}$/ },
  { what: 'users', run: 'grep -q nobody /etc/passwd && grep -q www-data /etc/group' },
];

const shell = (name: string, args = '--version'): ImageCheck => ({ what: name, run: `${name} ${args} 2>&1`, output: /./ });
const usage = (path: string): ImageCheck => ({ what: `${path} runs`, run: [path, '--help'], output: /(Usage|usage|-v|flags)/i });

const STAGING = 'k8s-staging-cri-tools';
const runsAs = (ids: RegExp): readonly ImageCheck[] => [KEEPS_NAMES, { what: 'runs as the user of its configuration', run: 'id', output: ids }];
const marked = (mark: string): readonly ImageCheck[] => [{ what: 'its mark', run: `cat /${mark}`, output: new RegExp(`^${mark}$`, 'm') }];

/** By the image's name without its tag; the parts of the path behind the registry. */
export const CHECKS: Readonly<Record<string, readonly ImageCheck[]>> = {
  ...Object.fromEntries(
    ['kube-apiserver', 'kube-controller-manager', 'kube-scheduler', 'kube-proxy'].map((name): [string, readonly ImageCheck[]] => [
      `registry.k8s.io/${name}`,
      [{ what: `${name} runs`, run: [`/usr/local/bin/${name}`, '--version'], output: /^Kubernetes v1\.37\./ }],
    ]),
  ),
  'registry.k8s.io/coredns/coredns': [{ what: 'coredns runs', run: ['/coredns', '-version'], output: /CoreDNS-1\.14/ }],
  'localhost/nodelet/kind-tools': [
    {
      what: 'kubectl, ip and nft',
      run: 'kubectl version --client && ip -V && nft --version',
      output: /Client Version: v1\.37[\s\S]*ip utility[\s\S]*nftables/,
    },
  ],
  'localhost/nodelet/proxy-base': [
    {
      what: "what Node is linked to, and the proxy's tools",
      run: 'ls /usr/lib/*/libstdc++.so.6 && iptables --version && nft --version',
      output: /libstdc[\s\S]*iptables v1[\s\S]*nftables/,
    },
  ],
  'registry.k8s.io/pause': [{ what: 'pause runs', run: ['/pause', '-v'], output: /pause/ }],
  'k8s.gcr.io/pause': [{ what: 'pause runs', run: ['/pause', '-v'], output: /pause/ }],
  'docker.io/library/nginx': NGINX,
  'docker.io/library/redis': [
    {
      what: 'redis keeps what it is given',
      run: serving('redis-server', 'redis-cli ping', 'redis-cli set greeting hello && redis-cli get greeting'),
      output: /OK\nhello/,
    },
  ],
  'registry.k8s.io/etcd': [
    { what: 'etcdctl speaks version 3', run: ['etcdctl', 'version'], output: /API version: 3/ },
    { what: '/usr/local/bin/etcd', run: ['/usr/local/bin/etcd', '--version'], output: /etcd Version: 3\.7/ },
    {
      what: 'etcd answers',
      run: serving('/usr/local/bin/etcd --data-dir /tmp/etcd', 'wget -qO- http://127.0.0.1:2379/health', 'wget -qO- http://127.0.0.1:2379/health'),
      output: /"health":"true"/,
    },
  ],
  'registry.k8s.io/build-image/distroless-iptables': [shell('iptables'), shell('conntrack'), shell('nft'), { what: 'sleep', run: 'sleep 0' }],
  'e2e-test-images/busybox': BUSYBOX,
  'e2e-test-images/nonroot': [...BUSYBOX, { what: 'runs as 1234', run: 'id -u', output: /^1234$/m }],
  'e2e-test-images/nonewprivs': [
    { what: 'nnp is set-user-ID', run: 'stat -c %a /usr/local/bin/nnp', output: /^6755$/m },
    { what: 'nnp gets the rights of root', run: ['nnp'], user: 1000, output: /^Effective uid: 0$/m },
  ],
  'e2e-test-images/nginx': NGINX,
  'e2e-test-images/agnhost': AGNHOST,
  'e2e-test-images/httpd': [
    { what: 'httpd serves its page', run: serving('httpd-foreground', 'wget -qO- localhost', 'wget -qO- localhost'), output: /It works/ },
  ],
  'e2e-test-images/kitten': [
    ...AGNHOST,
    {
      what: 'kitten.jpg, data.json and the release that tests look for',
      run: 'test -s /kitten.jpg; cat /data.json /etc/os-release',
      output: /kitten\.jpg[\s\S]*Alpine Linux/,
    },
  ],
  'e2e-test-images/nautilus': [...AGNHOST, { what: 'nautilus.jpg and data.json', run: 'test -s /nautilus.jpg && cat /data.json', output: /nautilus\.jpg/ }],
  'e2e-test-images/glibc-dns-testing': [
    KEEPS_NAMES,
    { what: 'dig', run: ['dig', '-v'], output: /DiG 9/ },
    { what: 'getent of glibc', run: 'getent hosts localhost; ldd --version', output: /glibc|GNU libc/i },
    { what: 'hostname --fqdn', run: 'hostname --version 2>&1', output: /hostname \d/ },
    { what: '/coredns', run: ['/coredns', '-version'], output: /^CoreDNS-\d/ },
  ],
  'e2e-test-images/sample-apiserver': [usage('/sample-apiserver')],
  'e2e-test-images/ipc-utils': [{ what: 'ipcs', run: 'ipcs', output: /Shared Memory Segments/ }],
  'e2e-test-images/perl': [
    { what: 'perl with its modules', run: ['perl', '-MPOSIX', '-MFile::Temp', '-e', 'print "perl ", POSIX::floor(5.5), "\\n"'], output: /^perl 5$/m },
  ],
  'e2e-test-images/resource-consumer': [
    { what: 'stress', run: 'stress --version', output: /stress \d/ },
    { what: 'consume-cpu', run: ['/consume-cpu', '-millicores=1', '-duration-sec=1'] },
    { what: 'consumer answers', run: serving('/consumer', "wget -qO- --post-data='metric=x&delta=1&durationSec=1' http://localhost:8080/BumpMetric", 'true') },
  ],
  'e2e-test-images/regression-issue-74839': [{ what: 'the program is there', run: 'test -x /regression-issue-74839' }],
  'e2e-test-images/apparmor-loader': [usage('/usr/bin/loader'), shell('apparmor_parser')],
  'e2e-test-images/sample-device-plugin': [
    { what: '/sampledeviceplugin starts and wants the kubelet’s folder', run: ['/sampledeviceplugin'], exit: 2, output: /device-plugins.*no such file/ },
  ],
  [`${STAGING}/hostnet-nginx-${process.arch === 'arm64' ? 'arm64' : 'amd64'}`]: [
    { what: 'nginx serves on 12003', run: serving("nginx -g 'daemon off;'", 'wget -qO- localhost:12003', 'wget -qO- localhost:12003'), output: /nginx/ },
  ],
  [`${STAGING}/test-image-user-uid`]: runsAs(/uid=1002/),
  [`${STAGING}/test-image-user-username`]: runsAs(/uid=33\(www-data\)/),
  [`${STAGING}/test-image-user-uid-group`]: runsAs(/uid=1003 gid=1004/),
  [`${STAGING}/test-image-user-username-group`]: runsAs(/uid=33\(www-data\) gid=1004/),
  [`${STAGING}/test-image-predefined-group`]: [{ what: 'its user and groups', run: 'id default-user', output: /uid=1000.*50000\(group-defined-in-image\)/ }],
  [`${STAGING}/test-image-latest`]: marked('latest'),
  [`${STAGING}/test-image-tag:test`]: marked('test'),
  [`${STAGING}/test-image-tag:all`]: marked('all'),
  [`${STAGING}/test-image-1`]: marked('1'),
  [`${STAGING}/test-image-2`]: marked('2'),
  [`${STAGING}/test-image-3`]: marked('3'),
  [`${STAGING}/test-image-tags`]: marked('tags'),
  'sig-storage/hostpathplugin': [usage('/hostpathplugin'), shell('mount', '-V'), shell('mkfs.ext4', '-V'), shell('losetup', '-V')],
  'sig-storage/csi-provisioner': [usage('/csi-provisioner')],
  'sig-storage/csi-attacher': [usage('/csi-attacher')],
  'sig-storage/csi-resizer': [usage('/csi-resizer')],
  'sig-storage/csi-snapshotter': [usage('/csi-snapshotter')],
  'sig-storage/csi-external-health-monitor-controller': [usage('/csi-external-health-monitor-controller')],
  'sig-storage/csi-snapshot-metadata': [usage('/csi-snapshot-metadata')],
};

/** The checks of an image by its full name; empty where none are written. */
export function checksOf(name: string): readonly ImageCheck[] {
  const path = name.replace(/:[^:/]+$/, '');
  for (const text of [name, path]) {
    const found = CHECKS[text] ?? CHECKS[text.slice(text.indexOf('/') + 1)];
    if (found !== undefined) return found;
  }
  return [];
}
