import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { OpError } from '../../../base/errors.ts';
import { settleEnvironment } from '../../../cri/core/by-nature.ts';
import { CallNames } from '../../../cri/core/changes.ts';
import { differences, type Difference } from '../../../cri/core/differences.ts';
import type { Known } from '../../../cri/core/expected.ts';
import type { CriRequest } from './requests.ts';

/** One of the recordings, as `record` writes it. */
export interface Contract {
  readonly pod: unknown;
  readonly cri: readonly CriRequest[];
  readonly apiWrites: readonly { readonly verb: string; readonly resource: string; readonly body: unknown }[];
  readonly events: readonly { readonly reason: string; readonly message: string }[];
  readonly [more: string]: unknown;
}

export const CONTRACTS = new URL('.', import.meta.url).pathname;

/** The recordings of a folder by pod. Throws OpError `not-found` when there are none. */
export async function readContracts(folder: string): Promise<Map<string, Contract>> {
  const names = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith('.json') && !name.startsWith('known')).sort();
  if (names.length === 0)
    throw new OpError('not-found', `read the recordings in ${folder}`, 'there are none', { advice: 'make them with: nodelet contract record' });
  return new Map(
    await Promise.all(names.map(async (name) => [name.slice(0, -'.json'.length), JSON.parse(await readFile(join(folder, name), 'utf8')) as Contract] as const)),
  );
}

/** `known.json` of a whole run, `known-fake.json` of our agent on fakes. */
export async function readKnown(file: string): Promise<Known[]> {
  return JSON.parse(await readFile(join(CONTRACTS, file), 'utf8')) as Known[];
}

/** Requests by what they are about, each with its number among its like; and the order of all. */
export function comparableRequests(requests: readonly CriRequest[]): Record<string, unknown> {
  const names = new CallNames();
  const out: Record<string, unknown> = {};
  const order: string[] = [];
  for (const { method, request, refused } of requests) {
    const fields = request as { containerId?: string; config?: { metadata?: { name?: string; attempt?: number }; envs?: { key?: string }[] } };
    const about =
      fields.containerId ?? (method === 'CreateContainer' ? `<container ${fields.config?.metadata?.name}#${fields.config?.metadata?.attempt ?? 0}>` : '');
    const name = names.next(method, about);
    order.push(name);
    const settled =
      fields.config?.envs === undefined
        ? request
        : { ...fields, config: { ...fields.config, envs: settleEnvironment(fields.config.envs, ({ key = '' }) => key) } };
    out[name] = refused === undefined ? settled : { refused, request: settled };
  }
  return { order, ...out };
}

/** Everything that patches of a pod's status ever said, without how it was cut into patches: that depends on who is faster. */
export function facts(writes: Contract['apiWrites']): string[] {
  const said = new Set<string>();
  for (const { verb, resource, body } of writes) {
    if (verb !== 'patch' || resource !== 'pods/status') {
      said.add(`${verb} ${resource} ${JSON.stringify(body)}`);
      continue;
    }
    const status = (body as { status?: Record<string, unknown> } | null)?.status ?? {};
    for (const text of leaves(status, 'status')) said.add(text);
  }
  return [...said].sort();
}

/** Leaves as `path = value`; items of lists by what names them, and of a condition or container state all in one. */
function leaves(value: unknown, path: string): string[] {
  if (Array.isArray(value)) {
    return value.flatMap((item: unknown, at) => {
      const named = (item ?? {}) as { type?: string; name?: string; ip?: string };
      return leaves(item, `${path}[${named.type ?? named.name ?? named.ip ?? at}]`);
    });
  }
  if (value !== null && typeof value === 'object') {
    return Object.entries(value)
      .filter(([key]) => !key.startsWith('$'))
      .flatMap(([key, inner]) => leaves(inner, `${path}.${key}`));
  }
  // A field that is taken away again, or said to be empty: which of both depends on how writes were cut.
  return value === null ? [] : [`${path} = ${JSON.stringify(value)}`];
}

function comparable({ pod: _pod, cri, apiWrites, events, running, ...rest }: Contract): Record<string, unknown> {
  const seen = running as { inside?: { environment?: string[] } | null };
  const inside =
    seen.inside === undefined || seen.inside === null
      ? seen.inside
      : { ...seen.inside, environment: settleEnvironment(seen.inside.environment ?? [], (entry) => entry.split('=')[0] ?? '') };
  return {
    cri: comparableRequests(cri),
    ...asSets({ ...seen, inside }),
    ...asSets(rest),
    facts: asSet(facts(apiWrites)),
    events: asSet(events.map(({ reason, message }) => `${reason}: ${message}`)),
  };
}

/** Lists of lines as sets, so that one more is one difference. */
function asSets(value: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, Array.isArray(inner) && inner.every((line) => typeof line === 'string') ? asSet(inner) : inner]),
  );
}

function asSet(lines: readonly string[]): Record<string, true> {
  return Object.fromEntries([...new Set(lines)].map((line) => [line, true as const]));
}

/** All in which two recordings of a pod differ, timing left out. */
export function compareContracts(upstream: Contract, ours: Contract): Difference[] {
  return differences(comparable(upstream), comparable(ours));
}
