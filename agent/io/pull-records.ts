import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { replaceFile } from '../../base/replace-file.ts';
import type { AuthConfig } from '../../proto/cri/types.ts';
import type { ImageMetrics, PullCheck } from './image-metrics.ts';
import {
  isProven,
  mergedRecord,
  needsProof,
  recordsVersion,
  withoutTag,
  type ImagePullCredentials,
  type ImagePulledRecord,
  type ImagePullIntent,
  type ShownCredentials,
} from '../core/pull-records.ts';

export interface PullRecordsOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** `--root-dir`; the records lie in its image_manager/, where upstream has them. */
  readonly rootDir: string;
  /** `imagePullCredentialsVerificationPolicy`. */
  readonly policy: string;
  /** `preloadedImagesVerificationAllowlist`. */
  readonly allowlist: readonly string[];
  readonly metrics?: Pick<ImageMetrics, 'checked' | 'remembered'>;
}

/** What is remembered of pulls, so that a pod does not get by name what others proved a right to (KEP-2535). */
export interface PullRecords {
  /** An image is about to be pulled. Throws when that cannot be written: then nothing may be pulled. */
  begin(image: string): Promise<void>;
  done(image: string, imageRef: string, credentials: ImagePullCredentials | null): Promise<void>;
  failed(image: string): Promise<void>;
  /** Whether an image that is here has to be asked of the registry all the same, with the pod's own credentials. */
  mustPull(image: string, imageRef: string, shown: () => Promise<ShownCredentials>): Promise<boolean>;
  /** Forgets images that the runtime has no more. */
  prune(imageRefs: ReadonlySet<string>, beforeMs: number): Promise<void>;
  /** Pulls that an earlier process began: those whose image is there are taken for done, with nobody's credentials. */
  recover(list: () => Promise<readonly { readonly id: string; readonly names: readonly string[] }[]>): Promise<void>;
}

/** The hash under which upstream keeps a credential: of its JSON as Go writes it. */
export function authHash(auth: Pick<AuthConfig, 'username' | 'password' | 'auth' | 'serverAddress' | 'identityToken' | 'registryToken'>): string {
  const fields = [
    ['username', auth.username],
    ['password', auth.password],
    ['auth', auth.auth],
    ['serveraddress', auth.serverAddress],
    ['identitytoken', auth.identityToken],
    ['registrytoken', auth.registryToken],
  ].filter(([, value]) => value !== undefined && value !== '');
  const json = JSON.stringify(Object.fromEntries(fields) as object).replace(
    /[<>&\u2028\u2029]/g,
    (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  return createHash('sha256').update(json).digest('hex');
}

function fileName(key: string): string {
  return `sha256-${createHash('sha256').update(key).digest('hex')}`;
}

/** Opens the folders of records. Throws when they cannot be made. */
export async function openPullRecords({ clock, log, rootDir, policy, allowlist, metrics }: PullRecordsOptions): Promise<PullRecords> {
  const pulling = join(rootDir, 'image_manager', 'pulling');
  const pulled = join(rootDir, 'image_manager', 'pulled');
  for (const folder of [pulling, pulled]) await mkdir(folder, { recursive: true, mode: 0o700 });
  const count = async (folder: string): Promise<void> =>
    metrics?.remembered(
      folder === pulling ? 'intents' : 'records',
      (await readdir(folder).catch(() => [])).filter((name) => /^sha256-[0-9a-f]{64}$/.test(name)).length,
    );
  for (const folder of [pulling, pulled]) await count(folder);
  const underWay = new Map<string, number>();
  /** One change of a record after another. */
  let last: Promise<unknown> = Promise.resolve();
  const inTurn = async <T>(work: () => Promise<T>): Promise<T> => {
    const mine = last.then(work);
    last = mine.catch(() => undefined);
    return mine;
  };

  const read = async <T extends { kind: string }>(path: string, kind: T['kind']): Promise<T | null> => {
    let text: string;
    try {
      text = await readFile(path, 'utf8');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
      throw error;
    }
    const object = JSON.parse(text) as T;
    if (object.kind !== kind) throw new Error(`${path} is no ${kind}`);
    return object;
  };
  const recordOf = async (imageRef: string): Promise<ImagePulledRecord | null> => {
    const record = await read<ImagePulledRecord>(join(pulled, fileName(imageRef)), 'ImagePulledRecord');
    return record?.imageRef === imageRef ? record : null;
  };
  const write = (folder: string, key: string, object: object): Promise<void> => replaceFile(join(folder, fileName(key)), `${JSON.stringify(object)}\n`);
  const remember = (image: string, imageRef: string, credentials: ImagePullCredentials | null): Promise<void> =>
    inTurn(async () => {
      const bare = withoutTag(image);
      if (bare === null) return;
      const record = await recordOf(imageRef).catch(() => null);
      const now = `${new Date(clock.nowMs()).toISOString().slice(0, 19)}Z`;
      const next = mergedRecord(record, imageRef, bare, credentials, now);
      if (next !== record) await write(pulled, imageRef, next);
      await count(pulled);
    });
  /** In turn, too: several pods pull one image at once, and share its intent. */
  const leave = (image: string): Promise<void> =>
    inTurn(async () => {
      const left = (underWay.get(image) ?? 1) - 1;
      if (left > 0) return void underWay.set(image, left);
      underWay.delete(image);
      await rm(join(pulling, fileName(image)), { force: true });
      await count(pulling);
    });
  const all = async <T extends { kind: string }>(folder: string, kind: T['kind']): Promise<T[]> => {
    const names = (await readdir(folder)).filter((name) => /^sha256-[0-9a-f]{64}$/.test(name));
    const objects = await Promise.all(
      names.map(async (name) =>
        read<T>(join(folder, name), kind).catch((error: unknown) => {
          log.error('A record of an image pull cannot be read', { path: join(folder, name), err: messageOf(error) });
          return null;
        }),
      ),
    );
    return objects.filter((object) => object !== null);
  };

  const mustPull = async (image: string, imageRef: string, shown: () => Promise<ShownCredentials>): Promise<PullCheck> => {
    let record: ImagePulledRecord | null;
    let ours: boolean;
    try {
      record = await recordOf(imageRef);
      ours = record !== null || (underWay.get(image) ?? 0) > 0 || (await read<ImagePullIntent>(join(pulling, fileName(image)), 'ImagePullIntent')) !== null;
    } catch (error) {
      log.error('Unable to access cache records about image pulls', { image, err: messageOf(error) });
      return 'error';
    }
    if (!needsProof(policy, allowlist, image, ours)) return 'credentialPolicyAllowed';
    const known = record?.credentialMapping?.[withoutTag(image) ?? image];
    if (known === undefined) return 'mustAuthenticate';
    if (known.nodePodsAccessible === true) return 'credentialRecordFound';
    if (!known.kubernetesSecrets?.length && !known.kubernetesServiceAccounts?.length) return 'mustAuthenticate';
    const { proven, learn } = isProven(known, await shown());
    if (learn !== null) {
      await remember(image, imageRef, { kubernetesSecrets: [learn] }).catch((error: unknown) =>
        log.error('failed to write an image pulled record', { image, imageRef, err: messageOf(error) }),
      );
    }
    return proven ? 'credentialRecordFound' : 'mustAuthenticate';
  };

  return {
    async begin(image) {
      const intent: ImagePullIntent = { kind: 'ImagePullIntent', apiVersion: recordsVersion, image };
      await inTurn(async () => {
        const others = underWay.get(image) ?? 0;
        if (others === 0) await write(pulling, image, intent);
        underWay.set(image, others + 1);
        await count(pulling);
      });
    },
    async done(image, imageRef, credentials) {
      try {
        await remember(image, imageRef, credentials);
      } catch (error) {
        // The intent stays: the image counts as pulled by us, and a new process makes a record of it.
        return log.error('failed to write image pulled record', { imageRef, err: messageOf(error) });
      }
      await leave(image).catch((error: unknown) => log.error('failed to remove image pull intent', { image, err: messageOf(error) }));
    },
    async failed(image) {
      await leave(image).catch((error: unknown) => log.error('failed to remove image pull intent', { image, err: messageOf(error) }));
    },
    async mustPull(image, imageRef, shown) {
      const result = await mustPull(image, imageRef, shown);
      metrics?.checked(result);
      return result === 'mustAuthenticate' || result === 'error';
    },
    async prune(imageRefs, beforeMs) {
      for (const { imageRef, lastUpdatedTime } of await all<ImagePulledRecord>(pulled, 'ImagePulledRecord'))
        if (!imageRefs.has(imageRef) && Date.parse(lastUpdatedTime) < beforeMs) await inTurn(() => rm(join(pulled, fileName(imageRef)), { force: true }));
      await count(pulled);
    },
    async recover(list) {
      const intents = await all<ImagePullIntent>(pulling, 'ImagePullIntent');
      if (intents.length === 0) return;
      const images = await list();
      for (const { image } of intents) {
        const here = images.find(({ names }) => names.includes(image));
        if (here === undefined) continue;
        await remember(image, here.id, null);
        await rm(join(pulling, fileName(image)), { force: true });
      }
    },
  };
}
