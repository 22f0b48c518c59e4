import { readFile } from 'node:fs/promises';
import { parseArgs, type ParseArgsConfig } from 'node:util';
import { messageOf, OpError } from '../../base/errors.ts';
import { readYaml } from '../../base/yaml.ts';
import { flagTexts } from '../../base/component-pages.ts';
import { tryDurationMs } from '../../base/duration.ts';
import { proxyConfig, withPort, type ProxyConfig } from '../core/config.ts';
import { configDocument, type ConfigDocument } from '../core/config-document.ts';
import { unknownFields } from '../core/config-fields.ts';

/** kube-proxy's command line. With --config the file decides, and the flags it covers are ignored, as upstream does. */

type Options = NonNullable<ParseArgsConfig['options']>;

/** Flag → where it goes in KubeProxyConfiguration (MODE is the section of the mode), and how its text is read. */
type Read = 'text' | 'bool' | 'int' | 'number' | 'list' | 'gates';
const COVERED: Record<string, { path: string; read: Read }> = {
  'bind-address': { path: 'bindAddress', read: 'text' },
  'bind-address-hard-fail': { path: 'bindAddressHardFail', read: 'bool' },
  'healthz-bind-address': { path: 'healthzBindAddress', read: 'text' },
  'metrics-bind-address': { path: 'metricsBindAddress', read: 'text' },
  'proxy-mode': { path: 'mode', read: 'text' },
  'cluster-cidr': { path: 'clusterCIDR', read: 'text' },
  'detect-local-mode': { path: 'detectLocalMode', read: 'text' },
  'pod-bridge-interface': { path: 'detectLocal.bridgeInterface', read: 'text' },
  'pod-interface-name-prefix': { path: 'detectLocal.interfaceNamePrefix', read: 'text' },
  'nodeport-addresses': { path: 'nodePortAddresses', read: 'list' },
  'masquerade-all': { path: 'MODE.masqueradeAll', read: 'bool' },
  'iptables-masquerade-bit': { path: 'iptables.masqueradeBit', read: 'int' },
  'iptables-localhost-nodeports': { path: 'iptables.localhostNodePorts', read: 'bool' },
  'iptables-sync-period': { path: 'MODE.syncPeriod', read: 'text' },
  'iptables-min-sync-period': { path: 'MODE.minSyncPeriod', read: 'text' },
  'oom-score-adj': { path: 'oomScoreAdj', read: 'int' },
  'conntrack-max-per-core': { path: 'conntrack.maxPerCore', read: 'int' },
  'conntrack-min': { path: 'conntrack.min', read: 'int' },
  'conntrack-tcp-timeout-established': { path: 'conntrack.tcpEstablishedTimeout', read: 'text' },
  'conntrack-tcp-timeout-close-wait': { path: 'conntrack.tcpCloseWaitTimeout', read: 'text' },
  'conntrack-tcp-be-liberal': { path: 'conntrack.tcpBeLiberal', read: 'bool' },
  'conntrack-udp-timeout': { path: 'conntrack.udpTimeout', read: 'text' },
  'conntrack-udp-timeout-stream': { path: 'conntrack.udpStreamTimeout', read: 'text' },
};

/** Upstream's flags that mean nothing here and that it tells of as its configuration; in the same form. */
const TOLD: typeof COVERED = {
  'kube-api-content-type': { path: 'clientConnection.contentType', read: 'text' },
  'kube-api-burst': { path: 'clientConnection.burst', read: 'int' },
  'kube-api-qps': { path: 'clientConnection.qps', read: 'number' },
  'config-sync-period': { path: 'configSyncPeriod', read: 'text' },
  'feature-gates': { path: 'featureGates', read: 'gates' },
  'ipvs-scheduler': { path: 'ipvs.scheduler', read: 'text' },
  'ipvs-exclude-cidrs': { path: 'ipvs.excludeCIDRs', read: 'list' },
  'ipvs-strict-arp': { path: 'ipvs.strictARP', read: 'bool' },
  'ipvs-tcp-timeout': { path: 'ipvs.tcpTimeout', read: 'text' },
  'ipvs-tcpfin-timeout': { path: 'ipvs.tcpFinTimeout', read: 'text' },
  'ipvs-udp-timeout': { path: 'ipvs.udpTimeout', read: 'text' },
  profiling: { path: 'enableProfiling', read: 'bool' },
  'show-hidden-metrics-for-version': { path: 'showHiddenMetricsForVersion', read: 'text' },
};

/** Upstream's flags that mean nothing here: taken, so that its manifests work unchanged. */
const WITHOUT_EFFECT = [
  'ipvs-sync-period',
  'ipvs-min-sync-period',
  'logging-format',
  'log-flush-frequency',
  'log-json-info-buffer-size',
  'log-json-split-stream',
  'log-text-info-buffer-size',
  'log-text-split-stream',
  'vmodule',
];

/** Flags that are true or false, beside those of the configuration. */
const BOOLEANS: ReadonlySet<string> = new Set(['help', 'version', 'cleanup', 'init-only', 'log-json-split-stream', 'log-text-split-stream']);

/** What flags without a field in the configuration are told to be when they are not given. */
const USUAL: Readonly<Record<string, string>> = {
  'healthz-port': '10256',
  'metrics-port': '10249',
  'ipvs-sync-period': '30s',
  'ipvs-min-sync-period': '1s',
  'logging-format': 'text',
  'log-flush-frequency': '5s',
  'log-json-info-buffer-size': '0',
  'log-text-info-buffer-size': '0',
};

export const HELP = `nodelet netfilter: the Kubernetes service proxy (kube-proxy)

  --kubeconfig FILE            how to reach the API server
  --config FILE                KubeProxyConfiguration v1alpha1; what it covers is not taken from flags
  --proxy-mode MODE            iptables (default, as upstream 1.37) or nftables
  --hostname-override NAME     this node's name (default: the host name)
  --cluster-cidr CIDR[,CIDR]   the range of pod addresses; traffic from elsewhere to a ClusterIP is masqueraded
  --nodeport-addresses LIST    CIDRs, or primary (default in nftables mode), localhost, all (default in iptables mode)
  --masquerade-all             masquerade all traffic to ClusterIPs
  --healthz-bind-address A     default 0.0.0.0:10256
  --metrics-bind-address A     default 127.0.0.1:10249
  --init-only                  set what needs full root privileges, and exit
  --cleanup                    remove the rules of kube-proxy in both modes and exit
  --v N                        verbosity of the log
  --write-config-to FILE       write the configuration, with all defaults, and exit
  --version                    print the version and exit
The other flags of kube-proxy are accepted too.

nodelet netfilter trace SRC DST:PORT   where a packet goes, and which rules say so
nodelet netfilter diff                 what the kernel has beside what it should have

Examples:
  nodelet netfilter --kubeconfig /etc/kubernetes/proxy.conf --proxy-mode nftables --cluster-cidr 10.244.0.0/16
  nodelet netfilter --config /var/lib/kube-proxy/config.conf
  nodelet netfilter --cleanup
  nodelet netfilter trace 10.244.0.2 10.96.0.10:53/udp
`;

export type Command =
  | { kind: 'help' }
  | { kind: 'version' }
  | { kind: 'cleanup'; verbosity: number }
  | { kind: 'write'; document: ConfigDocument; path: string; verbosity: number }
  | RunCommand;

export interface RunCommand {
  readonly kind: 'run';
  readonly config: ProxyConfig;
  /** The configuration as it is told of. */
  readonly document: ConfigDocument;
  readonly master: string;
  readonly initOnly: boolean;
  readonly verbosity: number;
  readonly ignored: readonly string[];
  /** Fields of the configuration file that are none. */
  readonly unknown: readonly string[];
  /** The configuration file; empty: there is none. */
  readonly file: string;
  /** Every flag with the value that counts, for /flagz. */
  readonly flagz: () => Record<string, string>;
}

function refuse(detail: string, cause?: unknown): OpError {
  return new OpError('invalid', 'read the command line', detail, { cause, advice: 'nodelet netfilter --help lists the flags.' });
}

/** As Go reads a truth value. */
function readBool(text: string): boolean | null {
  if (['1', 't', 'T', 'true', 'TRUE', 'True'].includes(text)) return true;
  return ['0', 'f', 'F', 'false', 'FALSE', 'False'].includes(text) ? false : null;
}

/** Go's flags know "--x", "--x=true" and "-v=2"; node's parser does not know a boolean with a value. */
function normalize(args: readonly string[], booleans: ReadonlySet<string>): string[] {
  return args.flatMap((arg) => {
    const match = /^--?([A-Za-z0-9-]+)(?:=(.*))?$/s.exec(arg);
    if (match === null) return [arg];
    const [, name = '', value] = match;
    if (name.startsWith('no-')) throw refuse(`unknown flag --${name}`);
    if (!booleans.has(name)) return [value === undefined ? `--${name}` : `--${name}=${value}`];
    const is = value === undefined ? true : readBool(value);
    if (is !== null) return [is ? `--${name}` : `--no-${name}`];
    throw refuse(`--${name} is true or false, not "${value}"`);
  });
}

function put(into: Record<string, unknown>, path: string, value: unknown): void {
  const [first = '', ...rest] = path.split('.');
  if (rest.length === 0) into[first] = value;
  else put((into[first] ??= {}) as Record<string, unknown>, rest.join('.'), value);
}

/** `A=true,B=false` */
function readGates(text: string): Record<string, boolean> {
  const pairs = text.split(',').map((pair) => pair.trim().split('='));
  return Object.fromEntries(
    pairs
      .filter(([name]) => name !== '')
      .map(([name = '', value = '']) => {
        const on = readBool(value.trim());
        if (on === null) throw refuse(`--feature-gates needs true or false for ${name}, not "${value}"`);
        return [name.trim(), on];
      }),
  );
}

function readValue(text: string | boolean, read: Read, name: string): unknown {
  if (read === 'bool') return text === true;
  if (read === 'gates') return readGates(String(text));
  if (read === 'list')
    return String(text)
      .split(',')
      .map((item) => item.trim());
  if (read === 'text') return text;
  if (read === 'number' && Number.isFinite(Number(text))) return Number(text);
  if (!/^-?\d+$/.test(String(text))) throw refuse(`--${name} needs a whole number`);
  return Number(text);
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/** Loaded when a gate is named: the table of all of them is longer than all else that is read here. */
async function checkGates(wanted: Readonly<Record<string, boolean>>): Promise<void> {
  if (Object.keys(wanted).length === 0) return;
  const problems = (await import('../../base/feature-gate-needs.ts')).gateProblems(wanted);
  if (problems.length > 0)
    throw new OpError('invalid', 'set the feature gates', problems.join('; '), { advice: 'docs/feature-gates.md lists those of Kubernetes 1.37.' });
}

async function readConfigFile(file: string): Promise<Record<string, unknown>> {
  let content: string;
  try {
    content = await readFile(file, 'utf8');
  } catch (cause) {
    throw new OpError('not-found', 'read the proxy configuration', `${file}: ${messageOf(cause)}`, { cause });
  }
  const parsed = await readYaml(content, file);
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed))
    throw new OpError('invalid', 'read the proxy configuration', `${file}: it is no mapping`);
  return parsed as Record<string, unknown>;
}

/** @param names of all flags; @param given by flag */
function flagsTold(names: readonly string[], document: ConfigDocument, given: Readonly<Record<string, string | boolean | undefined>>): Record<string, string> {
  const { mode } = document as { mode: string };
  const paths = new Map(Object.entries({ ...COVERED, ...TOLD }).map(([name, { path }]) => [name, path.replace('MODE', mode || 'iptables')]));
  paths.set('v', 'logging.verbosity').set('hostname-override', 'hostnameOverride').set('kubeconfig', 'clientConnection.kubeconfig');
  const told = flagTexts(
    names.map((name) => [name, paths.get(name) ?? null] as const),
    document,
    new Map(names.map((name) => [name, given[name] ?? USUAL[name] ?? (BOOLEANS.has(name) ? false : '')])),
  );
  // Go prints a list that is not there as one without anything in it.
  for (const [name, { read }] of Object.entries({ ...COVERED, ...TOLD })) if (read === 'list') told[name] ||= '[]';
  return told;
}

export async function readCommand(args: readonly string[]): Promise<Command> {
  const booleans = new Set(BOOLEANS);
  const settings = Object.entries({ ...COVERED, ...TOLD });
  for (const [name, { read }] of settings) if (read === 'bool') booleans.add(name);
  const options: Options = {};
  for (const name of [
    ...settings.map(([name]) => name),
    ...WITHOUT_EFFECT,
    ...booleans,
    'kubeconfig',
    'config',
    'hostname-override',
    'master',
    'v',
    'healthz-port',
    'metrics-port',
    'write-config-to',
  ]) {
    options[name] = booleans.has(name) ? { type: 'boolean' } : { type: 'string' };
  }
  options['help'] = { type: 'boolean', short: 'h' };
  let values: Record<string, string | boolean | undefined>;
  try {
    values = parseArgs({ args: normalize(args, booleans), options, strict: true, allowNegative: true, allowPositionals: false }).values as typeof values;
  } catch (cause) {
    throw cause instanceof OpError ? cause : refuse(messageOf(cause), cause);
  }
  const verbosity = values['v'] === undefined ? null : (readValue(values['v'], 'int', 'v') as number);
  if (values['help'] === true) return { kind: 'help' };
  if (values['version'] === true) return { kind: 'version' };
  if (values['cleanup'] === true) return { kind: 'cleanup', verbosity: verbosity ?? 0 };
  const file = values['config'];
  const object = typeof file === 'string' ? await readConfigFile(file) : {};
  const unknown = unknownFields(object);
  const ignored: string[] = [];
  const section = values['proxy-mode'] === 'nftables' ? 'nftables' : 'iptables';
  for (const [name, { path, read }] of settings) {
    const value = values[name];
    if (value === undefined || (name in TOLD && typeof file === 'string')) continue;
    if (typeof file === 'string') ignored.push(`--${name}`);
    else put(object, path.replace('MODE', section), readValue(value, read, name));
  }
  const target = textOf(values['write-config-to']);
  const portOf = (name: string): number | null => (values[name] === undefined || target !== '' ? null : (readValue(values[name], 'int', name) as number));
  const healthzPort = portOf('healthz-port');
  const metricsPort = portOf('metrics-port');
  const periodOf = (name: string): number | null => tryDurationMs(textOf(values[name]));
  if (typeof file !== 'string') {
    // Upstream has these before it reads the flags, so they do not follow --bind-address, as they do in a file.
    object['healthzBindAddress'] = withPort(textOf(object['healthzBindAddress']) || '0.0.0.0:10256', healthzPort || 10256);
    object['metricsBindAddress'] = withPort(textOf(object['metricsBindAddress']) || '127.0.0.1:10249', metricsPort || 10249);
  }
  const config = proxyConfig(object);
  await checkGates((object['featureGates'] ?? {}) as Readonly<Record<string, boolean>>);
  if (typeof file !== 'string') {
    if (healthzPort === 0) config.healthzBindAddress = '';
    if (metricsPort === 0) config.metricsBindAddress = '';
    // In a file 0 means the default, on the command line it means 0.
    if (periodOf('iptables-sync-period') === 0) throw refuse('--iptables-sync-period must be greater than 0');
    if (periodOf('iptables-min-sync-period') === 0) config.minSyncPeriodMs = 0;
  }
  const override = values['hostname-override'];
  if (typeof override === 'string' && override !== '' && override.trim() === '') throw refuse('--hostname-override is blank');
  if (typeof override === 'string' && override !== '') config.hostnameOverride = override.trim().toLowerCase();
  const kubeconfig = values['kubeconfig'];
  if (config.kubeconfig === '' && typeof kubeconfig === 'string') config.kubeconfig = kubeconfig;
  if (verbosity !== null) put(object, 'logging.verbosity', verbosity);
  const document = configDocument(object, config);
  const told = (document['logging'] as { verbosity: number }).verbosity;
  if (target !== '') return { kind: 'write', document, path: target, verbosity: told };
  return {
    kind: 'run',
    config,
    document,
    master: typeof values['master'] === 'string' ? values['master'] : '',
    initOnly: values['init-only'] === true,
    verbosity: told,
    ignored,
    unknown,
    file: textOf(file),
    flagz: () => flagsTold(Object.keys(options), document, values),
  };
}
