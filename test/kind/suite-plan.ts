/** A suite of `nodelet test`, a test file of one, or a piece that is no test file. */
export interface Work {
  readonly name: string;
  readonly files: readonly string[];
}

export interface NodeContainer {
  readonly container: string;
  readonly image: string;
  readonly root: string;
  /** The folder of the pinned Node below `.tools`. */
  readonly node: string;
  readonly assets: string;
  /** Programs of this machine that the container gets. */
  readonly statics: readonly string[];
}

const HOME = '/root/nodelet';

/**
 * The arguments of `docker` that start a node container as kind does (its docker provider's common arguments), without
 * its network: nothing of a cluster is in it.
 */
export function nodeArguments({ container, image, root, node, assets, statics }: NodeContainer): string[] {
  const shared = (from: string, to: string): string[] => ['--volume', `${from}:${to}:ro`];
  return [
    ...['run', '--detach', '--tty', '--name', container, '--hostname', 'node', '--privileged', '--cgroupns=private'],
    ...['--security-opt', 'seccomp=unconfined', '--security-opt', 'apparmor=unconfined', '--tmpfs', '/tmp', '--tmpfs', '/run', '--volume', '/var'],
    ...shared('/lib/modules', '/lib/modules'),
    ...['--volume', HOME],
    ...shared(`${root}/node_modules`, `${HOME}/node_modules`),
    ...shared(`${root}/.tools/${node}`, `${HOME}/.tools/${node}`),
    ...shared(assets, '/assets'),
    ...statics.flatMap((path) => shared(path, path)),
    image,
  ];
}

/** The script for a node container; its status is 1 if anything of it failed. */
export function jobOf(works: readonly Work[], node: string): string {
  const run = (words: string): string => `node --disable-warning=ExperimentalWarning ${words}`;
  const lines = works.flatMap(({ name, files }) => {
    if (name !== 'shutdown') return [run(`--test --test-concurrency=1 --test-reporter=spec ${files.join(' ')}`)];
    // A node image keeps logind off; its own mask is a link of this container alone.
    const logind = 'rm -f /etc/systemd/system/systemd-logind.service && systemctl daemon-reload && systemctl start dbus systemd-logind';
    return [`${logind} && ${run('test/machine/lone/shutdown.ts --assets=/assets')}`];
  });
  return [
    `export HOME=/root NO_COLOR=1 NODELET_ASSETS=/assets PATH=${HOME}/.tools/${node}/node_modules/node-linux-${process.arch}/bin:$PATH`,
    `cd ${HOME} && tar --extract --no-same-owner --file=/sources.tar || exit 70`,
    // Suites bring runtimes of their own.
    'systemctl stop kubelet containerd 2>/dev/null',
    'mkdir -p /usr/lib/cni && cp -n /opt/cni/bin/* /usr/lib/cni/',
    `failed=0; ${lines.map((line) => `{ ${line}; } || failed=1`).join('; ')}; exit $failed`,
  ].join('\n');
}
