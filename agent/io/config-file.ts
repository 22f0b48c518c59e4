import { readdir, readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { dirname, isAbsolute, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { durationMs, goDuration } from '../../base/duration.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import { version } from '../../base/version.ts';
import { readYaml } from '../../base/yaml.ts';
import { readConfiguration, type KubeletConfiguration } from '../core/config.ts';
import { checkConfiguration } from '../core/config-check.ts';
import { flagValue, flags, nodeLabelsProblem } from '../core/config-flags.ts';
import { featureGates } from '../../base/feature-gates.ts';
import { readWishes, type Wish } from '../core/wishes.ts';

/** What is said on the command line and is no part of the configuration. */
export interface AgentFlags {
  readonly kubeconfig: string;
  /** Asks for the first client certificate where the kubeconfig has none that is valid; empty: none is asked for. */
  readonly bootstrapKubeconfig: string;
  readonly hostnameOverride: string;
  readonly nodeIPs: readonly string[];
  readonly nodeLabels: Readonly<Record<string, string>>;
  readonly rootDir: string;
  readonly certDir: string;
  readonly lockFile: string;
  readonly exitOnLockContention: boolean;
  readonly credentialProviderConfig: string;
  readonly credentialProviderBinDir: string;
  /** The cgroup of the container runtime, whose use is told with the node's; empty: it is not. */
  readonly runtimeCgroups: string;
  /** `--cloud-provider=external`. */
  readonly externalCloud: boolean;
  /** How many dead containers stay, of each container and on the node (negative: all), and for how long each does. */
  readonly deadContainers: { readonly maxPerPodContainer: number; readonly maxContainers: number; readonly minAgeMs: number };
  /** Hard eviction thresholds are not taken off what pods may be given. */
  readonly allocatableIgnoresEviction: boolean;
  /** What upstream does not do; none unless named. */
  readonly wishes: ReadonlySet<Wish>;
  /** Verbosity. */
  readonly v: number;
}

export type AgentCommand =
  | { kind: 'version'; text: string }
  | { kind: 'help'; text: string }
  | {
      kind: 'run';
      flags: AgentFlags;
      config: KubeletConfiguration;
      warnings: string[];
      /** What was said on the command line, by the flags' names. */
      given: ReadonlyMap<string, unknown>;
    };

/** Reads flags and configuration files. Throws OpError `invalid` with one sentence for everything that is wrong. */
export async function readCommand(args: readonly string[]): Promise<AgentCommand> {
  const given = readFlags(args);
  if (given.get('version') !== undefined) return { kind: 'version', text: `Kubernetes ${version}\n` };
  if (given.get('help') !== undefined) return { kind: 'help', text: helpText() };
  const own = (name: string): unknown => given.get(name);
  const text = (name: string, fallback = ''): string => (own(name) as string | undefined) ?? fallback;
  const rootDir = text('root-dir', '/var/lib/kubelet');
  const { config, warnings } = await readConfig(text('config'), text('config-dir'), given);
  const nodeLabels = (own('node-labels') as Record<string, string> | undefined) ?? {};
  const labelsProblem = nodeLabelsProblem(nodeLabels);
  if (labelsProblem !== null) throw bad(labelsProblem);
  const wishes = readWishes((own('wishes') as string[] | undefined) ?? []);
  if (typeof wishes === 'string') throw bad(wishes, 'See docs/wishes.md.');
  const cloud = text('cloud-provider');
  if (cloud !== '' && cloud !== 'external')
    throw bad(
      `cloud provider ${JSON.stringify(cloud)} was specified, but built-in cloud providers are disabled. Please set --cloud-provider=external and migrate to an external cloud provider`,
    );
  const minAgeMs = durationMs(text('minimum-container-ttl-duration', '0s'));
  if (minAgeMs < 0) throw bad(`invalid minimum garbage collection age: ${goDuration(minAgeMs)}`);
  const kubeconfig = text('kubeconfig');
  const bootstrapKubeconfig = text('bootstrap-kubeconfig');
  await requireKubeconfig(kubeconfig, bootstrapKubeconfig);
  const lockFile = text('lock-file');
  const exitOnLockContention = own('exit-on-lock-contention') === true;
  if (exitOnLockContention && lockFile === '') throw bad('cannot exit on lock file contention: no lock file specified');
  return {
    kind: 'run',
    flags: {
      kubeconfig,
      bootstrapKubeconfig,
      hostnameOverride: text('hostname-override').trim().toLowerCase(),
      nodeIPs: (own('node-ip') as string[] | undefined) ?? [],
      nodeLabels,
      rootDir,
      certDir: text('cert-dir', join(rootDir, 'pki')),
      lockFile,
      exitOnLockContention,
      wishes,
      runtimeCgroups: text('runtime-cgroups'),
      externalCloud: text('cloud-provider') === 'external',
      deadContainers: {
        maxPerPodContainer: (own('maximum-dead-containers-per-container') as number | undefined) ?? 1,
        maxContainers: (own('maximum-dead-containers') as number | undefined) ?? -1,
        minAgeMs,
      },
      allocatableIgnoresEviction: own('experimental-allocatable-ignore-eviction') === true,
      credentialProviderConfig: text('image-credential-provider-config'),
      credentialProviderBinDir: text('image-credential-provider-bin-dir'),
      v: (own('v') as number | undefined) ?? config.logging.verbosity,
    },
    config,
    warnings,
    given,
  };
}

function bad(detail: string, advice = ''): OpError {
  return new OpError('invalid', 'start the agent', detail, { advice });
}

/** Names as given to their values; the last of several counts, but maps and lists add up. */
function readFlags(args: readonly string[]): Map<string, unknown> {
  const options: Record<string, { type: 'string' | 'boolean'; short?: string }> = { version: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } };
  for (const [name, { kind }] of Object.entries(flags))
    options[name] = { type: kind === 'bool' ? 'boolean' : 'string', ...(name === 'v' ? { short: 'v' } : {}) };
  const { tokens } = parseArgs({ args: args.map(plainFlag), options, strict: false, tokens: true, allowPositionals: true });
  const given = new Map<string, unknown>();
  for (const token of tokens) {
    if (token.kind === 'positional') throw bad(`unknown command ${JSON.stringify(token.value)}`, 'The agent takes flags only.');
    if (token.kind !== 'option') continue;
    const name = token.name;
    if (name === 'version' || name === 'help') {
      if (token.value !== 'false') given.set(name, true);
      continue;
    }
    const flag = flags[name];
    if (flag === undefined) throw bad(`unknown flag: ${token.rawName}`, 'See --help.');
    if (token.value === undefined && flag.kind !== 'bool') throw bad(`flag needs an argument: ${token.rawName}`);
    const read = flagValue(name, flag.kind, token.value ?? 'true');
    if ('problem' in read) throw bad(read.problem);
    given.set(name, added(given.get(name), read.value));
  }
  return given;
}

/** `--node_ip` is `--node-ip`, as for all of Kubernetes' programs. */
function plainFlag(arg: string): string {
  const [, name, rest = ''] = /^(--[A-Za-z0-9_-]+)(=[^]*)?$/.exec(arg) ?? [];
  return name === undefined ? arg : `${name.replaceAll('_', '-')}${rest}`;
}

function added(before: unknown, value: unknown): unknown {
  if (Array.isArray(before) && Array.isArray(value)) return [...(before as unknown[]), ...(value as unknown[])];
  if (typeof before === 'object' && before !== null && typeof value === 'object' && value !== null) {
    // Lists below one name add up, as headers do.
    const lists = Object.entries(before as Record<string, unknown>).map(([key, each]) => {
      const more = (value as Record<string, unknown>)[key];
      return [key, Array.isArray(each) && Array.isArray(more) ? [...(each as unknown[]), ...(more as unknown[])] : (more ?? each)];
    });
    return { ...value, ...Object.fromEntries(lists) };
  }
  return value;
}

/** File, then the files of `--config-dir` in order of their names, then flags: the later one wins. */
async function readConfig(file: string, directory: string, given: ReadonlyMap<string, unknown>): Promise<{ config: KubeletConfiguration; warnings: string[] }> {
  let document: Record<string, unknown> = { apiVersion: 'kubelet.config.k8s.io/v1beta1', kind: 'KubeletConfiguration' };
  if (file !== '') document = merged(document, withWholePaths(await readDocument(file), dirname(resolve(file))));
  for (const path of await partsOf(directory)) document = merged(document, await readDocument(path));
  const warnings: string[] = [];
  if (file === '' && directory === '')
    warnings.push(
      'No --config file: the defaults are those of KubeletConfiguration v1beta1 (no anonymous access, Webhook authorization, no read-only port), not the laxer ones of flags alone',
    );
  for (const [name, value] of given) {
    const flag = flags[name];
    if (flag?.ignored) warnings.push(`Flag --${name} is accepted and has no effect`);
    // Of maps the flag replaces the file's, as upstream does, but for gates, which add up.
    if (flag?.field)
      document = withField(
        document,
        flag.field.split('.'),
        name === 'feature-gates' ? { ...(document['featureGates'] as object), ...(value as object) } : value,
      );
  }
  const { config, problems } = readConfiguration(document);
  if (problems.length > 0) throw bad(problems.join('; '));
  const invalid = checkConfiguration(config);
  if (invalid.length > 0) throw bad(`failed to validate kubelet configuration, error: ${invalid.join('; ')}`, file === '' ? '' : `The file is ${file}.`);
  return { config, warnings: [...warnings, ...warningsOf(config)] };
}

/** Fields whose paths are meant from the folder of the file that they stand in; a part's are meant from where the agent runs, as upstream has it. */
const pathFields = ['staticPodPath', 'authentication.x509.clientCAFile', 'tlsCertFile', 'tlsPrivateKeyFile', 'resolvConf', 'volumePluginDir', 'podLogsDir'];

function withWholePaths(document: Record<string, unknown>, folder: string): Record<string, unknown> {
  return pathFields.reduce((so, field) => {
    const path = field.split('.');
    const value = path.reduce<unknown>((tree, name) => (tree as Record<string, unknown> | null | undefined)?.[name], so);
    return typeof value === 'string' && value !== '' && !isAbsolute(value) ? withField(so, path, join(folder, value)) : so;
  }, document);
}

/** The `.conf` files of a folder and of those in it, each folder by its names. */
async function partsOf(directory: string): Promise<string[]> {
  if (directory === '') return [];
  try {
    const paths: string[] = [];
    for (const entry of (await readdir(directory, { withFileTypes: true })).toSorted((left, right) => (left.name < right.name ? -1 : 1))) {
      const path = join(directory, entry.name);
      if (entry.isDirectory()) paths.push(...(await partsOf(path)));
      else if (entry.name.endsWith('.conf')) paths.push(path);
    }
    return paths;
  } catch (cause) {
    throw new OpError('invalid', 'start the agent', `--config-dir ${directory}: ${messageOf(cause)}`, { cause });
  }
}

async function readDocument(path: string): Promise<Record<string, unknown>> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (cause) {
    throw new OpError('invalid', 'start the agent', `failed to load kubelet config file, path: ${path}, error: ${messageOf(cause)}`, { cause });
  }
  const document = await readYaml(text, `kubelet config file ${path}`);
  const { problems } = readConfiguration(document ?? null);
  if (problems.length > 0) throw bad(`failed to load kubelet config file, path: ${path}, error: strict decoding error: ${problems.join(', ')}`);
  return document as Record<string, unknown>;
}

function merged(base: Record<string, unknown>, over: Record<string, unknown>): Record<string, unknown> {
  const out = { ...base };
  for (const [key, value] of Object.entries(over)) {
    const before = out[key];
    const both = [before, value].every((each) => typeof each === 'object' && each !== null && !Array.isArray(each));
    out[key] = both ? merged(before as Record<string, unknown>, value as Record<string, unknown>) : value;
  }
  return out;
}

function withField(document: Record<string, unknown>, path: readonly string[], value: unknown): Record<string, unknown> {
  const [first = '', ...rest] = path;
  if (rest.length === 0) return { ...document, [first]: value };
  const inner = document[first];
  return { ...document, [first]: withField(typeof inner === 'object' && inner !== null ? (inner as Record<string, unknown>) : {}, rest, value) };
}

/** What is said once, at the start. */
function warningsOf(config: KubeletConfiguration): string[] {
  const warnings: string[] = [];
  for (const [name, value] of Object.entries(config.featureGates)) {
    if (featureGates.get(name)?.stage === 'GA') warnings.push(`Setting GA feature gate ${name}=${value}. It will be removed in a future release.`);
  }
  for (const address of config.clusterDNS) if (isIP(address) === 0) warnings.push(`clusterDNS: ${JSON.stringify(address)} is no IP address, and is left out`);
  if (config.readOnlyPort !== 0)
    warnings.push(`readOnlyPort is set: whoever reaches port ${config.readOnlyPort} sees the pods of this node without authentication`);
  return warnings;
}

/** One of both must be there to be read; which of them is used is seen later. */
async function requireKubeconfig(kubeconfig: string, bootstrap: string): Promise<void> {
  if (kubeconfig === '' && bootstrap !== '') throw bad('--bootstrap-kubeconfig needs --kubeconfig, which is written with it');
  // Standalone mode.
  if (kubeconfig === '') return;
  const trouble = async (path: string): Promise<unknown> =>
    readFile(path).then(
      () => null,
      (error: unknown) => error,
    );
  const cause = await trouble(kubeconfig);
  if (cause === null) return;
  if (bootstrap === '') throw new OpError('invalid', 'start the agent', `--kubeconfig ${kubeconfig}: ${messageOf(cause)}`, { cause });
  const other = await trouble(bootstrap);
  if (other === null) return;
  throw new OpError(
    'invalid',
    'start the agent',
    `unable to load bootstrap kubeconfig: ${messageOf(other)}; and --kubeconfig ${kubeconfig}: ${messageOf(cause)}`,
    {
      cause: other,
      advice: 'kubeadm join writes the bootstrap kubeconfig; until then there is nothing to join with.',
    },
  );
}

function helpText(): string {
  const lines = Object.entries(flags).map(([name, { kind, field, ignored }]) => {
    const value = {
      bool: '',
      int: ' int',
      duration: ' duration',
      text: ' string',
      list: ' strings',
      map: ' key=value,…',
      boolMap: ' name=true|false,…',
      taints: ' key=value:effect,…',
      headers: ' name:value,…',
      reservations: ' numaNode:type=quantity,…;…',
    }[kind];
    const says = ignored === true ? 'accepted, without effect' : field === null ? '' : `sets ${field} of the configuration`;
    return `  --${name}${value}`.padEnd(52) + says;
  });
  return `The agent runs the pods of one node (a kubelet).\n\nUsage:\n  nodelet agent --kubeconfig FILE [flags]\n\nFlags (the kubelet's names; they override the --config file):\n${lines.map((line) => line.trimEnd()).join('\n')}\n  --version\n  -h, --help\n\nExamples:\n  nodelet agent --kubeconfig kubelet.conf --config kubelet.yaml --hostname-override worker-7\n  nodelet agent --config kubelet.yaml        # no API server: the pods of staticPodPath\n`;
}
