import { mkdir, rm, writeFile } from 'node:fs/promises';
import { createConnection } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { exec, tryExec } from '../../../base/exec.ts';
import { OpError } from '../../../base/errors.ts';
import { mirrorHosts } from '../../../node/core/files.ts';
import { IMAGE_PORT } from '../../../node/egress.ts';
import { PAUSE_IMAGE } from '../../../node/io/start.ts';
import type { Driver } from './node.ts';

/** What a distribution's containerd is started with. */
export interface RuntimeUnit {
  /** A folder of its own, made when it is missing. */
  readonly folder: string;
  /** Where containerd, its shim and ctr are. */
  readonly programs: string;
  readonly runc: string;
  /** CNI plugins. */
  readonly plugins: string;
  /** The images that were made on the host. */
  readonly images: string;
  /** nodelet.mjs, which serves them. */
  readonly bundle: string;
  readonly driver: Driver;
}

export const ADDRESS = '10.91.0.1';
const GATEWAY = '10.91.0.2';
const POD_RANGE = '10.91.1.0/24';
const LINK = 'lone0';
const UNIT = '/etc/systemd/system/containerd.service';
const TRIES = 240;
const PAUSE_MS = 500;
const START_MS = 5 * 60_000;

/** The second is what the suite's RuntimeClasses name. */
const HANDLERS = ['runc', 'test-handler'];

function configuration({ folder, runc, plugins, driver }: RuntimeUnit): string {
  return [
    'version = 3',
    'root = "/var/lib/containerd"',
    'state = "/run/containerd"',
    "[plugins.'io.containerd.cri.v1.images'.pinned_images]",
    `  sandbox = "${PAUSE_IMAGE}"`,
    "[plugins.'io.containerd.cri.v1.images'.registry]",
    `  config_path = "${folder}/certs.d"`,
    "[plugins.'io.containerd.cri.v1.runtime'.cni]",
    `  bin_dirs = ["${plugins}"]`,
    ...HANDLERS.flatMap((handler) => [
      `[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.${handler}]`,
      "  runtime_type = 'io.containerd.runc.v2'",
      `  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.${handler}.options]`,
      `    SystemdCgroup = ${driver === 'systemd'}`,
      `    BinaryName = '${runc}'`,
    ]),
    '',
  ].join('\n');
}

/** As the runtime's project ships it: what it started outlives it. */
const unit = ({ folder, programs }: RuntimeUnit): string => `[Unit]
After=dbus.service
[Service]
Type=notify
Environment=PATH=${programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=${programs}/containerd --config ${folder}/containerd.toml
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
LimitNOFILE=1048576
TasksMax=infinity
OOMScoreAdjust=-999
`;

const network = {
  cniVersion: '1.0.0',
  name: 'lone',
  plugins: [
    { type: 'ptp', ipam: { type: 'host-local', dataDir: '/run/cni/networks', ranges: [[{ subnet: POD_RANGE }]], routes: [{ dst: '0.0.0.0/0' }] } },
    { type: 'portmap', capabilities: { portMappings: true }, snat: true },
  ],
};

/** An address that a kubelet and an API server find, where the machine has no network. */
async function makeLink(): Promise<void> {
  const { code } = await tryExec(['ip', 'link', 'add', LINK, 'type', 'dummy'], {});
  if (code !== 0) await tryExec(['ip', 'link', 'add', LINK, 'type', 'veth', 'peer', 'name', `${LINK}-end`], {});
  await tryExec(['ip', 'link', 'set', `${LINK}-end`, 'up'], {});
  await tryExec(['ip', 'link', 'set', 'lo', 'up'], {});
  await tryExec(['ip', 'address', 'add', `${ADDRESS}/24`, 'dev', LINK], {});
  await exec(['ip', 'link', 'set', LINK, 'up'], { doing: 'making an address' });
  await exec(['ip', 'route', 'replace', 'default', 'via', GATEWAY, 'dev', LINK], { doing: 'making an address' });
}

/** Whether something listens there. */
export const listens = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = createConnection(port, '127.0.0.1');
    const tell = (does: boolean): void => {
      socket.destroy();
      resolve(does);
    };
    socket.on('connect', () => tell(true)).on('error', () => tell(false));
  });

/**
 * containerd as a unit of the machine's systemd with that cgroup driver, a pod network, and the images that were made on the
 * host. Only for a machine that is thrown away: it takes `/var/lib/containerd`, `/etc/cni` and 10.91.0.0/23.
 */
export async function startRuntimeUnit(runtime: RuntimeUnit): Promise<void> {
  const { folder, images, bundle } = runtime;
  await makeLink();
  await mkdir(`${folder}/certs.d/_default`, { recursive: true });
  await mkdir('/etc/cni/net.d', { recursive: true });
  await writeFile(`${folder}/certs.d/_default/hosts.toml`, mirrorHosts(`http://127.0.0.1:${IMAGE_PORT}`));
  await writeFile(`${folder}/resolv.conf`, 'nameserver 127.0.0.1\n');
  await writeFile(`${folder}/containerd.toml`, configuration(runtime));
  await writeFile('/etc/cni/net.d/10-lone.conflist', JSON.stringify(network));
  // It is masked in the image, for machines that start one of their own.
  await rm(UNIT, { force: true });
  await writeFile(UNIT, unit(runtime));
  await exec(['systemctl', 'daemon-reload'], { doing: 'starting containerd' });
  if (!(await listens(IMAGE_PORT))) {
    const egress = ['egress', '--listen', '127.0.0.1', '--from', '127.0.0.0/8', '--images', images];
    const argv = [process.execPath, '--disable-warning=ExperimentalWarning', bundle, ...egress];
    await exec(['systemd-run', '--unit=nodelet-images', '--collect', ...argv], { doing: 'serving images' });
    for (let tries = 0; !(await listens(IMAGE_PORT)); tries += 1) {
      if (tries === TRIES) throw new OpError('deadline', 'serving images', 'nobody listens', { advice: 'look at journalctl -u nodelet-images' });
      await delay(PAUSE_MS);
    }
  }
  await exec(['systemctl', 'restart', 'containerd.service'], { doing: 'starting containerd', timeoutMs: START_MS });
}
