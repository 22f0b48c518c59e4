import { isIPv4 } from 'node:net';
import { parseArgs } from 'node:util';
import { realClock } from '../base/clock.ts';
import { OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import { createLog } from '../base/log.ts';
import { failure } from '../base/process.ts';
import { realRng } from '../base/rng.ts';
import { addressAt } from './core/strategy-services.ts';
import { startControllers } from './controllers/mod.ts';
import { startDns } from './dns/mod.ts';
import { startScheduler } from './scheduler/mod.ts';
import { startControl } from './io/start.ts';

const FLAGS = {
  'data-dir': { type: 'string' },
  'pki-dir': { type: 'string' },
  'bind-address': { type: 'string', default: '0.0.0.0' },
  'secure-port': { type: 'string', default: '6443' },
  'advertise-address': { type: 'string' },
  'extra-san': { type: 'string', default: '' },
  'service-cluster-ip-range': { type: 'string', default: '10.96.0.0/16' },
  'cluster-cidr': { type: 'string', default: '10.244.0.0/16' },
  'allocate-node-cidrs': { type: 'string', default: 'true' },
  'cluster-domain': { type: 'string', default: 'cluster.local' },
  'dns-listen': { type: 'string', default: '' },
  'dns-upstream': { type: 'string', default: '' },
  'kubelet-port': { type: 'string', default: '10250' },
  'kubelet-certificate-authority': { type: 'string' },
  durability: { type: 'string', default: 'process' },
  without: { type: 'string', default: '' },
  v: { type: 'string', default: '0' },
  help: { type: 'boolean', default: false },
} as const;

const HELP = `Usage: nodelet control --data-dir DIR --pki-dir DIR --advertise-address IP [flags]

An embedded Kubernetes control plane: API server, scheduler, controllers, cluster DNS.

  --data-dir DIR                    where objects are kept
  --pki-dir DIR                     CA, certificates, keys and admin.kubeconfig; made at the first start
  --bind-address IP                 listen here (0.0.0.0)
  --secure-port N                   HTTPS port (6443)
  --advertise-address IP            how nodes and pods reach this API server
  --extra-san A,B                   more names and addresses for the serving certificate
  --service-cluster-ip-range CIDR   (10.96.0.0/16)
  --cluster-cidr CIDR               pod addresses; each node gets a /24 of it (10.244.0.0/16)
  --allocate-node-cidrs=false       leave nodes' ranges to whoever starts them
  --cluster-domain NAME             (cluster.local)
  --dns-listen IP:PORT              cluster DNS; left out: none
  --dns-upstream A,B                resolvers for other names
  --kubelet-port N                  for nodes that do not say theirs (10250)
  --kubelet-certificate-authority FILE  verify the kubelets' serving certificates by this CA
  --durability process|power        survive kill -9 (default) or power loss
  --without scheduler,controllers   leave parts out
  --v N                             log verbosity

Example:
  nodelet control --data-dir /var/lib/nodelet/control --pki-dir /etc/nodelet/pki --advertise-address 192.0.2.10
`;

const list = (text: string): string[] =>
  text
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '');

function refused(detail: string): OpError {
  return new OpError('invalid', 'reading the command line', detail, { advice: 'see: nodelet control --help' });
}

function required(value: string | undefined, flag: string): string {
  if (value === undefined || value === '') throw refused(`--${flag} is missing`);
  return value;
}

function portOf(text: string, flag: string): number {
  if (!/^\d{1,5}$/.test(text) || Number(text) > 65_535) throw refused(`--${flag}: ${JSON.stringify(text)} is no port`);
  return Number(text);
}

function addressOf(text: string, flag: string): string {
  if (!isIPv4(text)) throw refused(`--${flag}: ${JSON.stringify(text)} is no IPv4 address`);
  return text;
}

function cidrOf(text: string, flag: string): string {
  const [address = '', bits = ''] = text.split('/');
  if (!isIPv4(address) || !/^\d{1,2}$/.test(bits) || Number(bits) > 32) throw refused(`--${flag}: ${JSON.stringify(text)} is no IPv4 range`);
  return text;
}

/** `nodelet control`: wires the parts, waits for the signal, takes them down. */
export async function main(host: Host): Promise<number> {
  const log = createLog({
    name: 'control',
    verbosity: Number(/--v[= ](\d+)/.exec(host.args.join(' '))?.[1] ?? 0),
    nowMs: () => realClock.nowMs(),
    pid: host.pid,
    write: (line) => host.stderr(line),
  });
  const stop = new AbortController();
  host.signal.addEventListener('abort', () => stop.abort(), { once: true });
  let status = 0;
  const fatal = (error: unknown): void => {
    log.error('ending: the state in memory cannot be trusted', { err: error });
    status = 70;
    stop.abort();
  };
  try {
    const { values } = parseArgs({ args: [...host.args], options: FLAGS, strict: true });
    if (values.help) {
      host.stdout(HELP);
      return 0;
    }
    const dataDir = required(values['data-dir'], 'data-dir');
    const pkiDir = required(values['pki-dir'], 'pki-dir');
    const advertiseAddress = addressOf(required(values['advertise-address'], 'advertise-address'), 'advertise-address');
    if (!['process', 'power'].includes(values.durability)) throw refused(`--durability: ${JSON.stringify(values.durability)} is neither process nor power`);
    const dnsListen = values['dns-listen'];
    const serviceCidr = cidrOf(values['service-cluster-ip-range'], 'service-cluster-ip-range');
    const clusterCidr = cidrOf(values['cluster-cidr'], 'cluster-cidr');
    const control = await startControl({
      dataDir,
      pkiDir,
      bindAddress: values['bind-address'],
      extraSans: list(values['extra-san']),
      kubeletCaFile: values['kubelet-certificate-authority'],
      durability: values.durability === 'power' ? 'power' : 'process',
      clock: realClock,
      rng: realRng,
      log,
      fatal,
      config: {
        serviceCidr,
        clusterCidr,
        advertiseAddress,
        securePort: portOf(values['secure-port'], 'secure-port'),
        kubeletPort: portOf(values['kubelet-port'], 'kubelet-port'),
        dnsAddress: addressAt(serviceCidr, 10),
        dnsPort: Number(dnsListen.split(':').at(-1) ?? 53),
        dnsUpstreams: list(values['dns-upstream']),
        clusterDomain: values['cluster-domain'],
      },
    });
    log.info('serving', { address: `${values['bind-address']}:${control.port}`, kubeconfig: `${pkiDir}/admin.kubeconfig` });
    const config = {
      clusterCIDR: values['allocate-node-cidrs'] === 'false' ? undefined : clusterCidr,
      serviceCIDR: serviceCidr,
      clusterDomain: values['cluster-domain'],
      rootCA: control.caPem,
      dnsListen,
      dnsUpstreams: list(values['dns-upstream']),
      advertiseAddress,
    };
    const absent = new Set(list(values.without));
    const deps = (name: string) => ({ api: control.api(name), clock: realClock, rng: realRng, log: log.child(name), signal: stop.signal, config });
    const parts: Promise<unknown>[] = [];
    if (!absent.has('controllers')) parts.push(Promise.resolve(startControllers(deps('kube-controller-manager'))));
    if (!absent.has('scheduler')) parts.push(Promise.resolve(startScheduler(deps('kube-scheduler'))));
    if (dnsListen !== '' && !absent.has('dns')) parts.push(Promise.resolve(startDns(deps('coredns'))));
    for (const part of parts) part.catch(fatal);
    await stopped(stop.signal);
    await Promise.allSettled(parts);
    await control[Symbol.asyncDispose]();
    return status;
  } catch (error) {
    return failure(host, error);
  }
}

function stopped(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  const { promise, resolve } = Promise.withResolvers<void>();
  signal.addEventListener('abort', () => resolve(), { once: true });
  return promise;
}
