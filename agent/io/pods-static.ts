import { existsSync, watch } from 'node:fs';
import { open, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { readYaml } from '../../base/yaml.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { keyOf } from '../core/containers.ts';
import { isStatic, seenAnnotation } from '../core/static-pod.ts';
import type { PodView } from '../core/types.ts';
import type { PodSourceReader } from '../seams.ts';
import { createHeldPods, podOfManifest } from './held-pods.ts';

export interface StaticPodsOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly nodeName: string;
  /** `staticPodPath`: a directory of manifests, or one. */
  readonly path: string;
  /** `fileCheckFrequency`: how often everything is read again, for the kernel loses events. */
  readonly rescanMs: number;
}

export interface StaticPods extends PodSourceReader {
  run(signal: AbortSignal): Promise<void>;
}

const maxBytes = 10 * 1024 * 1024;
/** A file that is being written is read when it has been quiet for a moment. */
const quietMs = 100;

/** Pods from files on this node. What cannot be read is told once and changes nothing of the others. */
export function createStaticPods(options: StaticPodsOptions): StaticPods {
  const { clock, log, path } = options;
  const pods = createHeldPods();
  const said = new Map<string, string>();

  const complain = (file: string, message: string): void => {
    if (said.get(file) === message) return;
    said.set(file, message);
    log.error('Could not process manifest file', { path: file, err: message });
  };

  /** Which pod came from which file at the last scan. */
  const byFile = new Map<string, Pod>();
  /** Files that have gone since, whether or not they are back. */
  const went = new Map<string, 'perhaps' | 'surely'>();

  /**
   * A name came or went, or another file took its place: the kernel's watch does not say which. Of a known file two in a
   * row are its going and coming back; a file that is replaced has one.
   */
  const renamed = (file: string): void => {
    if (!byFile.has(file)) return;
    went.set(file, went.has(file) || !existsSync(file) ? 'surely' : 'perhaps');
  };

  /** Pods whose files went and are back are wanted no more for a moment, so that they end before they begin again. */
  const dropPutBack = (): void => {
    const gone = [...went].filter(([, how]) => how === 'surely').map(([file]) => byFile.get(file)?.metadata.uid);
    for (const [file, how] of went) if (how === 'surely') byFile.delete(file);
    went.clear();
    if (gone.length > 0)
      pods.replace(
        new Map(
          pods
            .list()
            .filter(({ key }) => !gone.includes(key.uid))
            .map((view) => [view.key.uid, view]),
        ),
      );
  };

  /** The pod in a file; null for one that is none. */
  const read = async (file: string): Promise<Pod | null> => {
    try {
      const text = await readBounded(file);
      const document = await readYaml(text, file);
      const place = { nodeName: options.nodeName, source: 'file', origin: `host:${options.nodeName}file:${file}`, nowMs: clock.nowMs() } as const;
      const pod = podOfManifest(document, place, 'read it');
      said.delete(file);
      return pod;
    } catch (error) {
      // Removed between the listing and the reading.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') complain(file, messageOf(error));
      return null;
    }
  };

  /** `patient`: a file that cannot be used keeps its former pod, for it may be half written; at the next full scan it ends. */
  const scan = async (patient: boolean): Promise<void> => {
    dropPutBack();
    const next = new Map<string, PodView>();
    const names = new Set<string>();
    const kept = new Map<string, Pod>();
    for (const file of await manifestsAt(path, complain)) {
      const pod = (await read(file)) ?? (patient ? byFile.get(file) : undefined) ?? null;
      if (pod === null) continue;
      kept.set(file, pod);
      const key = keyOf(pod);
      if (next.has(key.uid) || names.has(`${key.namespace}/${key.name}`)) {
        complain(file, `another manifest before it gives pod ${key.namespace}/${key.name}, or its UID`);
        continue;
      }
      names.add(`${key.namespace}/${key.name}`);
      const before = pods.get(key.uid);
      next.set(key.uid, before !== undefined && sameBut(before.pod, pod) ? before : { key, source: 'static', pod });
    }
    byFile.clear();
    for (const [file, pod] of kept) byFile.set(file, pod);
    const first = !pods.synced();
    pods.replace(next);
    if (first) log.info('Static pods read', { path, count: next.size });
  };

  return {
    ...pods,
    async run(signal) {
      let wake: () => void = () => undefined;
      let watcher: { close(): void } | null = null;
      let patient = false;
      while (!signal.aborted) {
        watcher ??= watched(
          path,
          (name) => {
            if (name !== null) renamed(join(path, name));
            wake();
          },
          () => (watcher = null),
        );
        const woken = new AbortController();
        wake = () => woken.abort();
        await scan(patient).catch((error: unknown) => complain(path, messageOf(error)));
        await clock.sleep(options.rescanMs, AbortSignal.any([signal, woken.signal])).catch(() => undefined);
        patient = woken.signal.aborted;
        if (patient) await clock.sleep(quietMs, signal).catch(() => undefined);
      }
      watcher?.close();
    },
  };
}

/** A path that is not there yet is looked for at the next scan. `onChange` gets a name that came or went; null: something else changed. */
function watched(path: string, onChange: (renamed: string | null) => void, onEnd: () => void): { close(): void } | null {
  try {
    const watcher = watch(path, { persistent: false }, (event, name) => onChange(event === 'rename' ? name : null));
    watcher.on('error', () => {
      watcher.close();
      onEnd();
    });
    return watcher;
  } catch {
    return null;
  }
}

/** The files that may hold a manifest, by name; hidden ones are none, as editors leave them. */
async function manifestsAt(path: string, complain: (file: string, message: string) => void): Promise<string[]> {
  const info = await stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
    complain(path, 'path does not exist, ignoring');
    return null;
  });
  if (info === null) return [];
  if (info.isFile()) return [path];
  if (!info.isDirectory()) throw new OpError('invalid', 'read static pods', 'path is not a directory or file');
  const files: string[] = [];
  for (const name of (await readdir(path)).filter((each) => !each.startsWith('.')).toSorted()) {
    const file = join(path, name);
    const found = await stat(file).catch(() => null);
    if (found?.isFile() === true) files.push(file);
    else if (found !== null) complain(file, found.isDirectory() ? 'it is a directory, not recursing into manifest path' : 'it is not a directory or file');
  }
  return files;
}

async function readBounded(file: string): Promise<string> {
  await using handle = await open(file, 'r');
  const { size } = await handle.stat();
  if (size > maxBytes) throw new OpError('invalid', 'read manifest', `it has ${size} bytes, and ${maxBytes} are the most`);
  return await handle.readFile('utf8');
}

/** Whether two readings say the same, whenever each was made. */
function sameBut(before: Pod, after: Pod): boolean {
  const plain = (pod: Pod): string =>
    JSON.stringify({ ...pod, metadata: { ...pod.metadata, annotations: { ...pod.metadata.annotations, [seenAnnotation]: '' } } });
  return isStatic(before) && plain(before) === plain(after);
}
