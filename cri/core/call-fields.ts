import { listFields } from './methods.ts';
import { sizeText } from './table.ts';

type Fields = Readonly<Record<string, unknown>>;
type Parts = readonly (string | false | undefined)[];
/** Of a request and its last answer (empty when there is none): what of them matters when looking over many calls. */
type Describe = (request: Fields, answer: Fields) => Parts;

const MAX_TEXT = 120;

function fields(value: unknown): Fields {
  return value !== null && typeof value === 'object' ? (value as Fields) : {};
}

function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function text(value: unknown): string {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? String(value) : '';
}

/** On one line, and no longer than a line bears. */
function brief(value: unknown): string {
  const line = text(value).replaceAll(/\s+/g, ' ').trim();
  return line.length > MAX_TEXT ? `${line.slice(0, MAX_TEXT)}…` : line;
}

function said(label: string, value: unknown): string | false {
  const word = brief(value);
  return word !== '' && word !== '0' && `${label} ${word}`;
}

function shortId(id: unknown): string {
  return text(id).slice(0, 12);
}

function made(id: unknown): string | false {
  return text(id) !== '' && `→ ${shortId(id)}`;
}

function command(...parts: readonly unknown[]): string | false {
  const words = parts.flatMap(list).map((word) => (/^[\w@%+=:,./-]+$/.test(text(word)) ? text(word) : JSON.stringify(word)));
  return words.length > 0 && brief(words.join(' '));
}

function count(items: unknown, one: string): string {
  const { length } = list(items);
  return `${length} ${one}${length === 1 ? '' : one.endsWith('x') ? 'es' : 's'}`;
}

/** `CONTAINER_RUNNING` → `running`. */
function state(value: unknown, prefix: string): string {
  return text(value).replace(prefix, '').toLowerCase();
}

function bytes(value: unknown): string | false {
  const size = Number(text(fields(value)['value']) || text(value));
  return size > 0 && sizeText(size);
}

function filter(request: Fields): Parts {
  const { id, state: wanted, podSandboxId, labelSelector } = fields(request['filter']);
  const labels = Object.entries(fields(labelSelector)).map(([key, value]) => `${key.replace('io.kubernetes.', '')}=${text(value)}`);
  return [
    text(id) !== '' && `of ${shortId(id)}`,
    text(podSandboxId) !== '' && `in ${shortId(podSandboxId)}`,
    wanted !== undefined && `only ${state(fields(wanted)['state'] ?? 'ready', /SANDBOX/.test(text(fields(wanted)['state'])) ? 'SANDBOX_' : 'CONTAINER_')}`,
    labels.length > 0 && brief(labels.join(',')),
  ];
}

/** An enum's first name is not on the wire. */
function listed(method: string, one: string, busy?: (item: Fields) => boolean, word = ''): Describe {
  return (request, answer) => {
    const items = list(answer[listFields[method] ?? '']);
    const many = busy === undefined ? 0 : items.filter((item) => busy(fields(item))).length;
    return [...filter(request), count(items, one), many > 0 && `${many} ${word}`];
  };
}

function resources(linux: unknown): Parts {
  const { cpuQuota, cpuPeriod, cpuShares, memoryLimitInBytes, cpusetCpus } = fields(linux);
  const quota = Number(text(cpuQuota));
  return [
    quota > 0 && `cpu ${Number((quota / (Number(text(cpuPeriod)) || 100_000)).toFixed(3))}`,
    said('shares', cpuShares),
    bytes(memoryLimitInBytes) !== false && `memory ${String(bytes(memoryLimitInBytes))}`,
    said('cpus', cpusetCpus),
  ];
}

function usage(of: unknown): Parts {
  const { cpu, memory } = fields(of);
  const nano = Number(text(fields(fields(cpu)['usageNanoCores'])['value']));
  const working = bytes(fields(memory)['workingSetBytes']);
  return [nano > 0 && `cpu ${Number((nano / 1e9).toFixed(3))}`, working !== false && `memory ${working}`];
}

/** Of a URL the server alone: the rest is a secret by which a stream is opened. */
function server(url: unknown): string | false {
  const found = /^\w+:\/\/[^/?]+/.exec(text(url))?.[0];
  return found !== undefined && `at ${found}`;
}

function namespaces(securityContext: unknown): Parts {
  const { network, pid, ipc } = fields(fields(securityContext)['namespaceOptions']);
  return [
    network === 'NODE' && 'host network',
    pid === 'NODE' && 'host pid',
    ipc === 'NODE' && 'host ipc',
    fields(securityContext)['privileged'] === true && 'privileged',
  ];
}

function usedBytes(answer: Fields): Parts {
  return list(answer['imageFilesystems']).map((one) => {
    const { fsId, usedBytes: used } = fields(one);
    return `${text(fields(fsId)['mountpoint'])} ${bytes(used) || '0B'}`;
  });
}

const imageOf: Describe = (request) => [brief(fields(request['image'])['image'])];

/** For each of the 43 methods of CRI v1. */
const TABLE: Readonly<Record<string, Describe>> = {
  Version: (_, answer) => [`${text(answer['runtimeName'])} ${text(answer['runtimeVersion'])}`.trim(), text(answer['runtimeApiVersion'])],
  RunPodSandbox: (request, answer) => {
    const { metadata, linux, portMappings } = fields(request['config']);
    return [
      said('attempt', fields(metadata)['attempt']),
      said('handler', request['runtimeHandler']),
      ...namespaces(fields(linux)['securityContext']),
      list(portMappings).length > 0 && count(portMappings, 'port'),
      made(answer['podSandboxId']),
    ];
  },
  StopPodSandbox: (request) => [shortId(request['podSandboxId'])],
  RemovePodSandbox: (request) => [shortId(request['podSandboxId'])],
  PodSandboxStatus: (request, answer) => {
    const status = fields(answer['status']);
    const network = fields(status['network']);
    return [
      Object.keys(status).length > 0 && state(status['state'] ?? 'SANDBOX_READY', 'SANDBOX_'),
      said('ip', [text(network['ip']), ...list(network['additionalIps']).map((one) => text(fields(one)['ip']))].filter((ip) => ip !== '').join(' ')),
      request['verbose'] === true && 'verbose',
    ];
  },
  ListPodSandbox: listed('ListPodSandbox', 'sandbox', (item) => item['state'] === undefined || item['state'] === 'SANDBOX_READY', 'ready'),
  StreamPodSandboxes: (request, answer) => [...filter(request), list(answer['podSandboxes']).length > 0 && count(answer['podSandboxes'], 'sandbox')],
  CreateContainer: (request, answer) => {
    const config = fields(request['config']);
    const { resources: limits, securityContext } = fields(config['linux']);
    const wanted = fields(config['image']);
    return [
      brief(wanted['userSpecifiedImage'] ?? wanted['image']),
      command(config['command'], config['args']),
      said('log', config['logPath']),
      ...resources(limits).filter((part) => part !== false && !part?.startsWith('shares')),
      fields(securityContext)['privileged'] === true && 'privileged',
      list(config['mounts']).length > 0 && count(config['mounts'], 'mount'),
      made(answer['containerId']),
    ];
  },
  StartContainer: (request) => [shortId(request['containerId'])],
  StopContainer: (request) => [`timeout ${text(request['timeout']) || '0'} s`, shortId(request['containerId'])],
  RemoveContainer: (request) => [shortId(request['containerId'])],
  ListContainers: listed('ListContainers', 'container', (item) => item['state'] === 'CONTAINER_RUNNING', 'running'),
  StreamContainers: (request, answer) => [...filter(request), list(answer['containers']).length > 0 && count(answer['containers'], 'container')],
  ContainerStatus: (request, answer) => {
    const status = fields(answer['status']);
    const word = state(status['state'] ?? 'CONTAINER_CREATED', 'CONTAINER_');
    return [
      Object.keys(status).length > 0 && word,
      word === 'exited' && `exit ${text(status['exitCode']) || '0'}`,
      word === 'exited' && brief(status['reason']),
      brief(status['message']),
      request['verbose'] === true && 'verbose',
    ];
  },
  UpdateContainerResources: (request) => resources(request['linux']),
  ReopenContainerLog: (request) => [shortId(request['containerId'])],
  ExecSync: (request, answer) => [
    command(request['cmd']),
    said('timeout', request['timeout']) && `timeout ${text(request['timeout'])} s`,
    Object.keys(answer).length > 0 && `exit ${text(answer['exitCode']) || '0'}`,
    (text(answer['stdout']) + text(answer['stderr'])).length > 0 &&
      `${sizeText(Math.floor((text(answer['stdout']).length + text(answer['stderr']).length) * 0.75))} out`,
  ],
  Exec: (request, answer) => [command(request['cmd']), request['tty'] === true && 'tty', request['stdin'] === true && 'stdin', server(answer['url'])],
  Attach: (request, answer) => [request['tty'] === true && 'tty', request['stdin'] === true && 'stdin', server(answer['url'])],
  PortForward: (request, answer) => [list(request['port']).length > 0 && `to ${list(request['port']).map(text).join(', ')}`, server(answer['url'])],
  ContainerStats: (_, answer) => usage(answer['stats']),
  ListContainerStats: listed('ListContainerStats', 'container'),
  StreamContainerStats: (request, answer) => [...filter(request), list(answer['containerStats']).length > 0 && count(answer['containerStats'], 'container')],
  PodSandboxStats: (_, answer) => usage(fields(answer['stats'])['linux']),
  ListPodSandboxStats: listed('ListPodSandboxStats', 'sandbox'),
  StreamPodSandboxStats: (request, answer) => [...filter(request), list(answer['podSandboxStats']).length > 0 && count(answer['podSandboxStats'], 'sandbox')],
  UpdateRuntimeConfig: (request) => [said('pod CIDR', fields(fields(request['runtimeConfig'])['networkConfig'])['podCidr'])],
  Status: (_, answer) => {
    const conditions = list(fields(answer['status'])['conditions']).map(fields);
    const bad = conditions.filter((one) => one['status'] !== true);
    const why = (one: Fields): string =>
      /^(Runtime|Network)Ready$/.test(text(one['type'])) ? `: ${brief(`${text(one['reason'])} ${text(one['message'])}`)}` : '';
    return [
      conditions
        .filter((one) => one['status'] === true)
        .map((one) => text(one['type']))
        .join(', '),
      ...bad.map((one) => `not ${text(one['type'])}${why(one)}`),
    ];
  },
  CheckpointContainer: (request) => [said('to', request['location']), said('timeout', request['timeout'])],
  CheckpointPod: (request) => [said('to', request['outputPath']), list(request['containerIds']).length > 0 && count(request['containerIds'], 'container')],
  RestorePod: (request, answer) => [
    said('from', request['checkpointPath']),
    list(answer['restoredContainers']).length > 0 && count(answer['restoredContainers'], 'container'),
    made(answer['podSandboxId']),
  ],
  GetContainerEvents: (_, answer) => [
    // An enum's first name, CONTAINER_CREATED_EVENT, is not on the wire.
    text(answer['containerId']) !== '' && state(answer['containerEventType'] ?? 'CONTAINER_CREATED_EVENT', 'CONTAINER_').replace('_event', ''),
    shortId(answer['containerId']),
  ],
  ListMetricDescriptors: (_, answer) => [count(answer['descriptors'], 'descriptor')],
  ListPodSandboxMetrics: (_, answer) => [count(answer['podMetrics'], 'sandbox')],
  StreamPodSandboxMetrics: (_, answer) => [list(answer['podSandboxMetrics']).length > 0 && count(answer['podSandboxMetrics'], 'sandbox')],
  RuntimeConfig: (_, answer) => [`cgroup driver ${text(fields(answer['linux'])['cgroupDriver'] ?? 'SYSTEMD').toLowerCase()}`],
  UpdatePodSandboxResources: (request) => resources(request['resources']),
  ListImages: (request, answer) => [brief(fields(fields(request['filter'])['image'])['image']), count(answer['images'], 'image')],
  StreamImages: (_, answer) => [list(answer['images']).length > 0 && count(answer['images'], 'image')],
  ImageStatus: (request, answer) => {
    const image = fields(answer['image']);
    return [
      ...imageOf(request, answer),
      Object.keys(image).length === 0 ? 'not there' : `there${bytes(image['size']) === false ? '' : `, ${String(bytes(image['size']))}`}`,
    ];
  },
  PullImage: (request, answer) => [
    ...imageOf(request, answer),
    Object.keys(fields(request['auth'])).length > 0 && 'with credentials',
    text(answer['imageRef']) !== '' &&
      `→ ${text(answer['imageRef'])
        .replace(/^sha256:/, '')
        .slice(0, 12)}`,
  ],
  RemoveImage: imageOf,
  ImageFsInfo: (_, answer) => usedBytes(answer),
};

/** Methods of which the table says something: a test holds it against the service's own list. */
export const describedMethods: readonly string[] = Object.keys(TABLE);

/**
 * What matters of a call, as short parts: image, command, exit code, address and so on, by method. Nothing of what
 * only an answer says while there is none. Empty for methods that are unknown.
 */
export function callFields(method: string, request: Fields, answer: Fields, hasAnswer: boolean): string[] {
  const describe = TABLE[method];
  if (describe === undefined) return [];
  const parts = describe(request, answer).filter((part) => typeof part === 'string' && part !== '') as string[];
  return hasAnswer ? parts : parts.filter((part) => !/^(0 \w+|not there|cgroup driver .*|exit 0)$/.test(part));
}
