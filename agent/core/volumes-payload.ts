import type {
  ConfigMap,
  ConfigMapProjection,
  KeyToPath,
  Pod,
  PodCertificateProjection,
  Secret,
  SecretProjection,
  Volume,
  VolumeProjection,
} from '../../proto/kube/types.ts';
import type { CertificateAsk, Credential } from './pod-certificates.ts';
import type { QuantityText } from './quantity.ts';
import { trustAnchors } from './trust-bundles.ts';
import type { TrustBundleCopy } from './trust-bundles.ts';
import { downwardText } from './volumes-downward.ts';

/** One file to be written; `base64` is decoded by whoever writes it. */
export interface PayloadFile {
  readonly path: string;
  readonly text: string;
  readonly encoding: 'utf8' | 'base64';
  readonly mode: number;
  readonly uid?: number;
}

/** What was asked of the API server: `null` is "not there", `error` why it could not be told. */
export type Fetched<T> = { readonly object: T | null } | { readonly error: string };

export interface TokenAsk {
  readonly audience: string;
  readonly expirationSeconds: number;
}

/** The objects a volume takes its files from. */
export interface PayloadNeeds {
  readonly configMaps: readonly string[];
  readonly secrets: readonly string[];
  readonly tokens: readonly TokenAsk[];
  readonly certificates: readonly CertificateAsk[];
  readonly trustBundles: boolean;
}

export interface PayloadInputs {
  readonly pod: Pod;
  readonly configMaps: ReadonlyMap<string, Fetched<ConfigMap>>;
  readonly secrets: ReadonlyMap<string, Fetched<Secret>>;
  readonly tokens: ReadonlyMap<string, { readonly token: string } | { readonly error: string }>;
  /** By `certificateKey`. */
  readonly certificates: ReadonlyMap<string, Credential | { readonly error: string }>;
  readonly trustBundles: TrustBundleCopy | { readonly error: string };
  readonly allocatable: Readonly<Record<string, QuantityText>>;
  /** Users that volumes and their items name own the files (`AtomicWriteVolumeUserFields`, KEP-5936). */
  readonly fileUsers?: boolean;
}

/** What a volume says of files that do not say it themselves. */
interface Defaults {
  readonly mode: number;
  readonly uid: number | undefined;
}

export type Payload = { readonly ok: true; readonly files: readonly PayloadFile[] } | { readonly ok: false; readonly message: string };

const defaultFileMode = 0o644;

export function tokenKey(ask: TokenAsk): string {
  return `${ask.expirationSeconds}/${ask.audience}`;
}

export function certificateKey({ volume, source }: CertificateAsk): string {
  return `${volume}/${source}`;
}

export function payloadNeeds(volume: Volume): PayloadNeeds {
  const configMaps: string[] = [];
  const secrets: string[] = [];
  const tokens: TokenAsk[] = [];
  const certificates: CertificateAsk[] = [];
  let trustBundles = false;
  if (volume.configMap?.name !== undefined) configMaps.push(volume.configMap.name);
  if (volume.secret?.secretName !== undefined) secrets.push(volume.secret.secretName);
  for (const [index, source] of (volume.projected?.sources ?? []).entries()) {
    if (source.configMap?.name !== undefined) configMaps.push(source.configMap.name);
    if (source.secret?.name !== undefined) secrets.push(source.secret.name);
    if (source.serviceAccountToken !== undefined) tokens.push(askOf(source.serviceAccountToken));
    if (source.podCertificate !== undefined) certificates.push({ volume: volume.name, source: index });
    if (source.clusterTrustBundle !== undefined) trustBundles = true;
  }
  return { configMaps, secrets, tokens, certificates, trustBundles };
}

function askOf(source: { audience?: string; expirationSeconds?: number }): TokenAsk {
  return { audience: source.audience ?? '', expirationSeconds: source.expirationSeconds ?? 3600 };
}

/** The files of a configMap, secret, downwardAPI or projected volume, or why they cannot be made. */
export function payloadOf(volume: Volume, inputs: PayloadInputs): Payload {
  if (volume.configMap !== undefined) {
    const { name = '', items, optional } = volume.configMap;
    return checked(configMapFiles({ name, items, optional }, inputs, defaultsOf(volume.configMap, inputs)));
  }
  if (volume.secret !== undefined) {
    const { secretName = '', items, optional } = volume.secret;
    return checked(secretFiles({ name: secretName, items, optional }, inputs, defaultsOf(volume.secret, inputs)));
  }
  if (volume.downwardAPI !== undefined) {
    return checked(downwardFiles(volume.downwardAPI.items ?? [], inputs, defaultsOf(volume.downwardAPI, inputs)));
  }
  const defaults = defaultsOf(volume.projected ?? {}, inputs);
  const parts = (volume.projected?.sources ?? []).map((source, index) => projectedFiles(source, inputs, defaults, { volume: volume.name, source: index }));
  const failures = parts.flatMap((part) => (part.ok ? [] : [part.message]));
  if (failures.length > 0) return { ok: false, message: failures.length === 1 ? (failures[0] ?? '') : `[${[...new Set(failures)].join(', ')}]` };
  // A later source wins where two name the same path.
  const files = new Map<string, PayloadFile>();
  for (const part of parts) if (part.ok) for (const file of part.files) files.set(file.path, file);
  return checked({ ok: true, files: [...files.values()] });
}

function defaultsOf({ defaultMode, defaultUser }: { readonly defaultMode?: number; readonly defaultUser?: number }, { fileUsers }: PayloadInputs): Defaults {
  return { mode: defaultMode ?? defaultFileMode, uid: fileUsers === true ? defaultUser : undefined };
}

/** The owner of one file: what its item says goes first. */
function ownerOf(user: number | undefined, defaults: Defaults, { fileUsers }: PayloadInputs): Pick<PayloadFile, 'uid'> {
  const uid = (fileUsers === true ? user : undefined) ?? defaults.uid;
  return uid === undefined ? {} : { uid };
}

function projectedFiles(source: VolumeProjection, inputs: PayloadInputs, defaults: Defaults, place: CertificateAsk): Payload {
  if (source.secret !== undefined) return secretFiles(source.secret, inputs, defaults);
  if (source.configMap !== undefined) return configMapFiles(source.configMap, inputs, defaults);
  if (source.downwardAPI !== undefined) return downwardFiles(source.downwardAPI.items ?? [], inputs, defaults);
  if (source.serviceAccountToken !== undefined) {
    const got = inputs.tokens.get(tokenKey(askOf(source.serviceAccountToken)));
    if (got === undefined || 'error' in got) return { ok: false, message: got?.error ?? 'no token was asked for' };
    return { ok: true, files: [ownedFile(inputs, source.serviceAccountToken, source.serviceAccountToken.path, got.token, defaults)] };
  }
  if (source.clusterTrustBundle !== undefined) {
    const copy = inputs.trustBundles;
    if ('error' in copy) return { ok: false, message: copy.error };
    const anchors = trustAnchors(source.clusterTrustBundle, copy);
    return anchors.ok ? { ok: true, files: [ownedFile(inputs, source.clusterTrustBundle, source.clusterTrustBundle.path, anchors.text, defaults)] } : anchors;
  }
  if (source.podCertificate !== undefined) return certificateFiles(source.podCertificate, inputs, defaults, place);
  return { ok: true, files: [] };
}

function certificateFiles(source: PodCertificateProjection, inputs: PayloadInputs, defaults: Defaults, place: CertificateAsk): Payload {
  const got = inputs.certificates.get(certificateKey(place));
  if (got === undefined || 'error' in got) return { ok: false, message: got?.error ?? 'no certificate was asked for' };
  const texts: [string | undefined, string][] = [
    [source.credentialBundlePath, got.keyPem + got.chainPem],
    [source.keyPath, got.keyPem],
    [source.certificateChainPath, got.chainPem],
  ];
  return { ok: true, files: texts.flatMap(([path = '', text]) => (path === '' ? [] : [ownedFile(inputs, source, path, text, defaults)])) };
}

/** A file that belongs to the user it is meant for, else the only user of the pod, or is private to its group, where there is one. */
function ownedFile(inputs: PayloadInputs, source: { readonly user?: number }, path: string, text: string, defaults: Defaults): PayloadFile {
  const { pod } = inputs;
  const { uid = singleUser(pod) } = ownerOf(source.user, defaults, inputs);
  const isPrivate = uid !== undefined || pod.spec.securityContext?.fsGroup !== undefined;
  const file: PayloadFile = { path, text, encoding: 'utf8', mode: isPrivate ? 0o600 : defaults.mode };
  return uid === undefined ? file : { ...file, uid };
}

/** The user that all containers run as, where there is exactly one; tokens and certificates are made readable for it alone. */
export function singleUser(pod: Pod): number | undefined {
  const podUser = pod.spec.securityContext?.runAsUser;
  const { initContainers = [], containers, ephemeralContainers = [] } = pod.spec;
  const users = [...initContainers, ...containers, ...ephemeralContainers].map((container) => container.securityContext?.runAsUser ?? podUser);
  const [first] = users;
  return users.every((user) => user === first) ? first : undefined;
}

interface KeySource {
  readonly noun: string;
  readonly missingKey: string;
  readonly entries: ReadonlyMap<string, Pick<PayloadFile, 'text' | 'encoding'>>;
}

function configMapFiles(source: ConfigMapProjection, inputs: PayloadInputs, defaults: Defaults): Payload {
  const name = source.name ?? '';
  const found = objectOf(inputs.configMaps.get(name), 'configmap', name, source.optional === true);
  if (!found.ok) return found;
  const entries = new Map<string, Pick<PayloadFile, 'text' | 'encoding'>>();
  for (const [key, text] of Object.entries(found.object?.data ?? {})) entries.set(key, { text, encoding: 'utf8' });
  for (const [key, text] of Object.entries(found.object?.binaryData ?? {})) entries.set(key, { text, encoding: 'base64' });
  return keyFiles({ noun: 'configmap', missingKey: 'configmap references non-existent config key', entries }, source, inputs, defaults);
}

function secretFiles(source: SecretProjection, inputs: PayloadInputs, defaults: Defaults): Payload {
  const name = source.name ?? '';
  const found = objectOf(inputs.secrets.get(name), 'secret', name, source.optional === true);
  if (!found.ok) return found;
  const entries = new Map<string, Pick<PayloadFile, 'text' | 'encoding'>>();
  for (const [key, text] of Object.entries(found.object?.data ?? {})) entries.set(key, { text, encoding: 'base64' });
  return keyFiles({ noun: 'secret', missingKey: 'references non-existent secret key', entries }, source, inputs, defaults);
}

function objectOf<T>(
  fetched: Fetched<T> | undefined,
  noun: string,
  name: string,
  isOptional: boolean,
): { ok: true; object: T | null } | { ok: false; message: string } {
  if (fetched === undefined) return { ok: false, message: `${noun} "${name}" was not asked for` };
  if ('error' in fetched) return { ok: false, message: fetched.error };
  if (fetched.object === null && !isOptional) return { ok: false, message: `${noun} "${name}" not found` };
  return { ok: true, object: fetched.object };
}

function keyFiles(
  source: KeySource,
  { items, optional: isOptional = false }: { readonly items?: readonly KeyToPath[]; readonly optional?: boolean },
  inputs: PayloadInputs,
  defaults: Defaults,
): Payload {
  if (items === undefined || items.length === 0) {
    return { ok: true, files: [...source.entries].map(([path, entry]) => ({ path, ...entry, mode: defaults.mode, ...ownerOf(undefined, defaults, inputs) })) };
  }
  const files: PayloadFile[] = [];
  for (const item of items) {
    const entry = source.entries.get(item.key);
    if (entry !== undefined) files.push({ path: item.path, ...entry, mode: item.mode ?? defaults.mode, ...ownerOf(item.user, defaults, inputs) });
    else if (!isOptional) return { ok: false, message: `${source.missingKey}: ${item.key}` };
  }
  return { ok: true, files };
}

function downwardFiles(items: readonly Parameters<typeof downwardText>[1][], inputs: PayloadInputs, defaults: Defaults): Payload {
  const files: PayloadFile[] = [];
  const failures: string[] = [];
  for (const item of items) {
    const answer = downwardText(inputs.pod, item, inputs.allocatable);
    if (answer.ok)
      files.push({ path: item.path, text: answer.text, encoding: 'utf8', mode: item.mode ?? defaults.mode, ...ownerOf(item.user, defaults, inputs) });
    else failures.push(answer.message);
  }
  if (failures.length > 0) return { ok: false, message: failures.length === 1 ? (failures[0] ?? '') : `[${[...new Set(failures)].join(', ')}]` };
  return { ok: true, files };
}

/** Refuses paths that would leave the volume or meet the writer's own names. */
function checked(payload: Payload): Payload {
  if (!payload.ok) return payload;
  const files: PayloadFile[] = [];
  for (const file of payload.files) {
    const path = file.path
      .split('/')
      .filter((part) => part !== '' && part !== '.')
      .join('/');
    const message = pathProblem(file.path);
    if (message !== null) return { ok: false, message };
    files.push({ ...file, path });
  }
  return { ok: true, files };
}

function pathProblem(path: string): string | null {
  if (path === '') return 'invalid path: must not be empty: ""';
  if (path.startsWith('/')) return `invalid path: must be relative path: ${path}`;
  if (path.length > 4096) return 'invalid path: must be less than or equal to 4096 characters';
  const parts = path.split('/');
  if (parts.includes('..')) return `invalid path: must not contain '..': ${path}`;
  if (parts.some((part) => part.length > 255)) return 'invalid path: filenames must be less than or equal to 255 characters';
  if (parts.every((part) => part === '' || part === '.')) return `invalid path: must name a file: ${path}`;
  if ((parts[0] ?? '').startsWith('..')) return `invalid path: must not start with '..': ${path}`;
  if (path.includes('\0')) return 'invalid path: must not contain NUL';
  return null;
}
