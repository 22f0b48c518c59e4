import { fnv1a32 } from '../hash.ts';
import { byKey, damaged, dataOf, jsonObject, parseObject, readShape, stateText } from './checkpoint-text.ts';
import { noCpus } from './cpu-static.ts';
import type { CpuState } from './cpu-static.ts';
import { formatCpuSet, parseCpuSet } from './cpuset.ts';
import type { CpuSet } from './cpuset.ts';

const fileName = 'cpu_manager_state';

type Entries = readonly (readonly [string, readonly (readonly [string, string])[]])[];

/**
 * `cpu_manager_state` as upstream 1.37 writes it: what is new in `data`, what older kubelets read beside it.
 * `baselines`: what containers got when they were taken is told too (`InPlacePodVerticalScalingExclusiveCPUs`); here
 * no resize ever changes it.
 */
export function encodeCpuState(policy: string, state: CpuState, { baselines = false } = {}): string {
  const shared = formatCpuSet(state.shared);
  const entries: Entries = byKey(state.given).map(([uid, containers]) => [
    uid,
    byKey(containers).map(([name, cpus]): [string, string] => [name, formatCpuSet(cpus)]),
  ]);
  const json = jsonObject(entries.map(([uid, containers]) => [uid, jsonObject(containers.map(([name, cpus]) => [name, JSON.stringify(cpus)]))]));
  const fields: [string, string][] = [
    ['policyName', JSON.stringify(policy)],
    ['defaultCpuSet', JSON.stringify(shared)],
    ...(entries.length === 0 ? [] : [['entries', json] as [string, string]]),
  ];
  const pods = byKey(state.pods ?? new Map<string, CpuSet>()).map(([uid, cpus]): [string, string] => [uid, JSON.stringify({ cpuSet: formatCpuSet(cpus) })]);
  const first = entries.map(([uid, containers]): [string, string] => [
    uid,
    jsonObject(containers.map(([name, cpus]) => [name, JSON.stringify({ baseline: cpus })])),
  ]);
  return stateText(fields, { podEntries: pods, baselines: baselines ? first : [] }, fieldsChecksum(policy, shared, entries));
}

/**
 * Reads `cpu_manager_state`, of 1.37 or older; no text is no state. Throws OpError `invalid` when it is damaged or of
 * another policy: whose CPUs are whose cannot be guessed.
 */
export function decodeCpuState(text: string, policy: string): CpuState {
  return readShape(fileName, () => decode(text, policy));
}

function decode(text: string, policy: string): CpuState {
  if (text === '') return noCpus;
  const file = parseObject(text, fileName);
  const data = dataOf(file, fileName);
  const {
    policyName = '',
    defaultCpuSet = '',
    entries = {},
    podEntries = {},
  } = (data === null ? file : parseObject(data, fileName)) as {
    policyName?: string;
    defaultCpuSet?: string;
    entries?: Record<string, Record<string, string>>;
    podEntries?: Record<string, { cpuSet?: string }>;
  };
  const lists: Entries = byKey(Object.entries(entries ?? {})).map(([uid, containers]) => [uid, byKey(Object.entries(containers ?? {}))]);
  if (data === null && ![0, fieldsChecksum(policyName, defaultCpuSet, lists)].includes(Number(file['checksum'] ?? -1)))
    throw damaged(fileName, 'checkpoint is corrupted');
  if (policyName !== policy) throw damaged(fileName, `configured policy "${policy}" differs from state checkpoint policy "${policyName}"`);
  const read = (cpus: string): readonly number[] => {
    const set = parseCpuSet(cpus);
    if (set === null) throw damaged(fileName, `could not parse cpuset "${cpus}"`);
    return set;
  };
  const pods = Object.entries(podEntries ?? {}).map(([uid, { cpuSet = '' }]): [string, CpuSet] => [uid, read(cpuSet)]);
  return {
    ...(pods.length === 0 ? {} : { pods: new Map(pods) }),
    shared: read(defaultCpuSet),
    given: new Map(lists.map(([uid, containers]) => [uid, new Map(containers.map(([name, cpus]) => [name, read(cpus)]))])),
  };
}

/** Over what Go's printer makes of the older form of the file. */
function fieldsChecksum(policy: string, shared: string, entries: Entries): number {
  const list = entries.map(([uid, containers]) => `${uid}:map[${containers.map(([name, cpus]) => `${name}:${cpus}`).join(' ')}]`).join(' ');
  return fnv1a32(
    `(*state.CPUManagerCheckpoint){PolicyName:(string)${policy} DefaultCPUSet:(string)${shared} Entries:(map[string]map[string]string)map[${list}] Checksum:(checksum.Checksum)0}`,
  );
}
