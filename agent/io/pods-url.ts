import type { Clock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { readYaml } from '../../base/yaml.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { keyOf } from '../core/containers.ts';
import type { PodView } from '../core/types.ts';
import { createHeldPods, podOfManifest } from './held-pods.ts';
import type { StaticPods } from './pods-static.ts';

export interface UrlPodsOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly nodeName: string;
  /** `staticPodURL`: a Pod or a PodList, as JSON or YAML. */
  readonly url: string;
  /** `staticPodURLHeader`. */
  readonly headers: Readonly<Record<string, readonly string[]>>;
  /** `httpCheckFrequency`. */
  readonly periodMs: number;
}

const maxBytes = 10 * 1024 * 1024;
const timeoutMs = 10_000;
/** So many failures in a row are told; the rest only to who wants to know more. */
const saidMax = 4;

/** Static pods from a URL. As long as it cannot be read, or says what is no pod, the pods stay as they were. */
export function createUrlPods(options: UrlPodsOptions): StaticPods {
  const { clock, log, url } = options;
  const shown = withoutPassword(url);
  const pods = createHeldPods();
  let before: string | null = null;
  let failures = 0;

  const look = async (signal: AbortSignal): Promise<void> => {
    const text = await fetchText(url, options.headers, signal);
    if (text === '') {
      pods.replace(new Map());
      before = null;
      throw new OpError('invalid', `read ${shown}`, `zero-length data received from ${shown}`);
    }
    if (text === before) return;
    const document = await readYaml(text, shown);
    const next = new Map<string, PodView>();
    for (const each of documentsOf(document)) {
      // One that cannot be used leaves all as they were: a list is one wish.
      const pod = podOfManifest(each, { nodeName: options.nodeName, source: 'http', origin: `url:${url}`, nowMs: clock.nowMs() }, `read ${shown}`);
      const key = keyOf(pod);
      const known = pods.get(key.uid);
      next.set(key.uid, known !== undefined && hashOf(known.pod) === hashOf(pod) ? known : { key, source: 'static', pod });
    }
    before = text;
    pods.replace(next);
    log.info('Static pods read', { url: shown, count: next.size });
  };

  return {
    ...pods,
    async run(signal) {
      log.info('Watching URL', { URL: shown });
      while (!signal.aborted) {
        try {
          await look(signal);
          if (failures > 0) log.info('Successfully read pods from URL');
          failures = 0;
        } catch (error) {
          if (signal.aborted) return;
          failures += 1;
          const fields = { err: messageOf(error) };
          if (failures < saidMax) log.info('Failed to read pods from URL', fields);
          else if (failures === saidMax) log.info('Failed to read pods from URL. Dropping verbosity of this message to V(4)', fields);
          else log.debug(4, 'Failed to read pods from URL', fields);
        }
        await clock.sleep(options.periodMs, signal).catch(() => undefined);
      }
    },
  };
}

/** The pod's content, as the annotation of a mirror pod tells it; a given UID says nothing of that. */
function hashOf(pod: Pod): string {
  return JSON.stringify([pod.metadata.labels, pod.spec, pod.metadata.name, pod.metadata.namespace]);
}

/** A Pod, or each of a PodList, which need not repeat what it is. */
function documentsOf(document: unknown): unknown[] {
  if (typeof document !== 'object' || document === null) return [document];
  const { kind, apiVersion, items } = document as Record<string, unknown>;
  if (kind !== 'PodList' || apiVersion !== 'v1' || !Array.isArray(items)) return [document];
  return items.map((item: unknown) => (typeof item === 'object' && item !== null ? { apiVersion: 'v1', kind: 'Pod', ...item } : item));
}

/** For logs and messages. */
function withoutPassword(url: string): string {
  if (!URL.canParse(url)) return url;
  const shown = new URL(url);
  if (shown.password === '') return url;
  shown.password = 'xxxxx';
  return shown.href;
}

async function fetchText(url: string, headers: Readonly<Record<string, readonly string[]>>, signal: AbortSignal): Promise<string> {
  const shown = withoutPassword(url);
  const doing = `read ${shown}`;
  const given = new Headers();
  const target = new URL(url);
  const { username, password } = target;
  target.username = target.password = '';
  for (const [name, values] of Object.entries(headers)) for (const value of values) given.append(name, value);
  // As Go's client does with what stands before the host; fetch refuses such a URL, and prints it.
  if ((username !== '' || password !== '') && !given.has('authorization'))
    given.set('authorization', `Basic ${Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`).toString('base64')}`);
  const response = await fetch(target, { headers: given, signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]) });
  if (response.status !== 200) {
    await response.body?.cancel();
    throw new OpError('failed', doing, `${shown}: ${response.status} ${response.statusText}`);
  }
  let text = '';
  const decoder = new TextDecoder();
  for await (const piece of response.body ?? []) {
    text += decoder.decode(piece as Uint8Array, { stream: true });
    if (text.length > maxBytes) throw new OpError('invalid', doing, `more than ${maxBytes} bytes`);
  }
  return text + decoder.decode();
}
