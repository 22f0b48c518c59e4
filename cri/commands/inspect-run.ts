import type { Host } from '../../base/host.ts';
import type { ClientOptions } from '../client.ts';
import { containerItems, findNamed, imageItems, sandboxItems, type Item, type Kind } from '../core/named.ts';
import { plainJson } from '../core/plain-json.ts';
import { connectEndpoints, type RuntimeConnection } from '../io/endpoint.ts';
import { callOptions } from './list-run.ts';
import type { RuntimeFlags } from './runtime-options.ts';

export interface InspectFlags extends RuntimeFlags {
  readonly kind?: Kind;
}

async function allItems(runtime: RuntimeConnection, kind: Kind | undefined, options: ClientOptions): Promise<Item[]> {
  const { client } = runtime;
  const isAsked = (each: Kind): boolean => kind === undefined || kind === each;
  const [containers, sandboxes, images] = await Promise.all([
    isAsked('container') ? client.runtime.listContainers({}, options) : null,
    isAsked('sandbox') ? client.runtime.listPodSandbox({}, options) : null,
    isAsked('image') ? client.images.listImages({}, options) : null,
  ]);
  return [...containerItems(containers?.containers ?? []), ...sandboxItems(sandboxes?.items ?? []), ...imageItems(images?.images ?? [])];
}

function details(runtime: RuntimeConnection, item: Item, options: ClientOptions): Promise<object> {
  const { client } = runtime;
  if (item.kind === 'container') return client.runtime.containerStatus({ containerId: item.id, verbose: true }, options);
  if (item.kind === 'sandbox') return client.runtime.podSandboxStatus({ podSandboxId: item.id, verbose: true }, options);
  return client.images.imageStatus({ image: { image: item.id }, verbose: true }, options);
}

/** The runtime's own details are JSON in texts: shown as what they are. */
function openInfo(answer: object): object {
  if (!('info' in answer)) return answer;
  const open = (text: unknown): unknown => {
    try {
      return JSON.parse(String(text));
    } catch {
      return text;
    }
  };
  return { ...answer, info: Object.fromEntries(Object.entries(answer.info as object).map(([key, text]) => [key, open(text)])) };
}

/** `nodelet cri inspect`. */
export async function inspect(host: Host, names: readonly string[], flags: InspectFlags): Promise<number> {
  await using runtime = await connectEndpoints(flags, host.env);
  const options = callOptions(host, flags);
  const items = await allItems(runtime, flags.kind, options);
  const found = names.map((name) => findNamed(items, name, 'inspect'));
  for (const item of found) {
    const answer = { kind: item.kind, ...openInfo(await details(runtime, item, options)) };
    host.stdout(`${JSON.stringify(plainJson(answer), null, flags.json ? 0 : 2)}\n`);
  }
  return 0;
}
