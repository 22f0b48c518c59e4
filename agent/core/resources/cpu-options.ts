import type { CpuTopology } from './cpu-topology.ts';

/** `cpuManagerPolicyOptions` of the static policy (KEPs 2625, 2902, 3327, 4176, 4540, 4800). */
export interface CpuOptions {
  readonly fullCores: boolean;
  readonly distributeNuma: boolean;
  readonly alignBySocket: boolean;
  readonly distributeCores: boolean;
  readonly strictReservation: boolean;
  readonly preferUncore: boolean;
}

export const noCpuOptions: CpuOptions = {
  fullCores: false,
  distributeNuma: false,
  alignBySocket: false,
  distributeCores: false,
  strictReservation: false,
  preferUncore: false,
};

const known: Readonly<Record<string, { readonly field: keyof CpuOptions; readonly stage: 'Alpha' | 'Beta' | 'GA' }>> = {
  'full-pcpus-only': { field: 'fullCores', stage: 'GA' },
  'distribute-cpus-across-numa': { field: 'distributeNuma', stage: 'Beta' },
  'align-by-socket': { field: 'alignBySocket', stage: 'Alpha' },
  'distribute-cpus-across-cores': { field: 'distributeCores', stage: 'Alpha' },
  'strict-cpu-reservation': { field: 'strictReservation', stage: 'GA' },
  'prefer-align-cpus-by-uncorecache': { field: 'preferUncore', stage: 'GA' },
};

type Read<T> = { readonly ok: true; readonly options: T } | { readonly ok: false; readonly message: string };

/** Options by name; the message of what is wrong is upstream's. */
export function readCpuOptions(wanted: Readonly<Record<string, string>>, gates: { readonly alpha: boolean; readonly beta: boolean }): Read<CpuOptions> {
  const options: Record<keyof CpuOptions, boolean> = { ...noCpuOptions };
  for (const [name, text] of Object.entries(wanted)) {
    const option = Object.hasOwn(known, name) ? known[name] : undefined;
    if (option === undefined) return wrong(`unknown CPU Manager Policy option: ${JSON.stringify(name)}`);
    if (option.stage === 'Alpha' && !gates.alpha)
      return wrong(`CPU Manager Policy Alpha-level Options not enabled, but option ${JSON.stringify(name)} provided`);
    if (option.stage === 'Beta' && !gates.beta) return wrong(`CPU Manager Policy Beta-level Options not enabled, but option ${JSON.stringify(name)} provided`);
    const value = readBool(text);
    if (value === null) return wrong(`bad value for option ${JSON.stringify(name)}: strconv.ParseBool: parsing ${JSON.stringify(text)}: invalid syntax`);
    options[option.field] = value;
  }
  for (const [one, other] of exclusions) {
    if (options[known[one]!.field] && options[known[other]!.field]) return wrong(`static policy options ${one} and ${other} can not be used at the same time`);
  }
  return { ok: true, options };
}

const exclusions: readonly (readonly [string, string])[] = [
  ['full-pcpus-only', 'distribute-cpus-across-cores'],
  ['distribute-cpus-across-numa', 'distribute-cpus-across-cores'],
  ['prefer-align-cpus-by-uncorecache', 'distribute-cpus-across-cores'],
  ['prefer-align-cpus-by-uncorecache', 'distribute-cpus-across-numa'],
];

/** What of the options this machine or the topology policy cannot have; null: nothing. */
export function cpuOptionsProblem(options: CpuOptions, topology: CpuTopology, topologyPolicy: string): string | null {
  if (!options.alignBySocket) return null;
  if (topologyPolicy === 'single-numa-node') return 'Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option';
  if (topology.sockets > topology.numaNodes) return 'Align by socket is not compatible with hardware where number of sockets are more than number of NUMA';
  return null;
}

export interface TopologyOptions {
  readonly preferClosest: boolean;
  readonly maxNodes: number;
}

const usualMaxNodes = 8;

/** `topologyManagerPolicyOptions`. */
export function readTopologyOptions(wanted: Readonly<Record<string, string>>): Read<TopologyOptions> {
  let options: TopologyOptions = { preferClosest: false, maxNodes: usualMaxNodes };
  for (const [name, text] of Object.entries(wanted)) {
    if (name === 'prefer-closest-numa-nodes') {
      const value = readBool(text);
      if (value === null) return wrong(`bad value for option ${JSON.stringify(name)}: strconv.ParseBool: parsing ${JSON.stringify(text)}: invalid syntax`);
      options = { ...options, preferClosest: value };
    } else if (name === 'max-allowable-numa-nodes') {
      if (!/^[+-]?\d+$/.test(text))
        return wrong(`unable to convert policy option to integer ${JSON.stringify(name)}: strconv.Atoi: parsing ${JSON.stringify(text)}: invalid syntax`);
      if (Number(text) < usualMaxNodes) return wrong(`the minimum value of ${JSON.stringify(name)} should not be less than ${usualMaxNodes}`);
      options = { ...options, maxNodes: Number(text) };
    } else return wrong(`unknown Topology Manager Policy option: ${JSON.stringify(name)}`);
  }
  return { ok: true, options };
}

function wrong(message: string): { readonly ok: false; readonly message: string } {
  return { ok: false, message };
}

/** As Go reads booleans. */
function readBool(text: string): boolean | null {
  if (['1', 't', 'T', 'true', 'TRUE', 'True'].includes(text)) return true;
  return ['0', 'f', 'F', 'false', 'FALSE', 'False'].includes(text) ? false : null;
}
