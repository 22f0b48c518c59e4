import { generateKeyPair } from 'node:crypto';
import { promisify } from 'node:util';
import { BugError } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import { podCertificateRequests, serviceAccounts } from '../../base/kubeapi/refs.ts';
import type { KubeApi, KubeObject } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import { createKeyedQueue } from '../../base/queue.ts';
import type { KeyedQueue } from '../../base/queue.ts';
import type { Rng } from '../../base/rng.ts';
import { certificateRequest, unpem } from '../../base/x509.ts';
import type { Pod, PodCertificateProjection, PodCertificateRequest } from '../../proto/kube/types.ts';
import { awaitedRequest, certificateTurn, credentialOf, maxJitterMs, stateWord, withRequest } from '../core/pod-certificates.ts';
import type { CertificateAsk, CertificateState, Credential } from '../core/pod-certificates.ts';
import type { EventText } from '../core/types.ts';

export interface PodCertificatesOptions {
  readonly api: KubeApi;
  readonly clock: Clock;
  readonly rng: Rng;
  readonly log: Log;
  readonly nodeName: string;
  /** Undefined until the node is registered. */
  readonly nodeUid: () => string | undefined;
  readonly tell: (pod: Pod, event: EventText) => void;
  /** Called with the UID of a pod one of whose certificates has come or is refused for good. */
  readonly onChange: (uid: string) => void;
  readonly onBug: (error: unknown) => void;
}

/** One podCertificate source of one pod. */
interface Projection {
  readonly key: string;
  pod: Pod;
  readonly source: PodCertificateProjection;
  state: CertificateState;
  /** Made, but not yet in a request: tried again with the next attempt. */
  keyPem: string | undefined;
}

const concurrency = 4;

/**
 * Certificates for podCertificate projections: a key and a PodCertificateRequest for each, followed to its end, and
 * again when the signer says so. Nothing is kept on disk but the volume itself: a new process asks anew. Each look at
 * a volume (a try to start the pod, the minute's refresh) drives its projections on.
 */
export class PodCertificates implements AsyncDisposable {
  readonly #options: PodCertificatesOptions;
  readonly #projections = new Map<string, Projection>();
  /** By namespace/name: what the API server has for this node. */
  readonly #requests = new Map<string, PodCertificateRequest>();
  readonly #queue: KeyedQueue;
  readonly #closing = new AbortController();
  #watching: Promise<void> | undefined;

  constructor(options: PodCertificatesOptions) {
    const { clock, log, onBug } = options;
    this.#options = options;
    this.#queue = createKeyedQueue({
      clock,
      concurrency,
      work: (key, signal) => this.#drive(key, signal),
      onError: (key, error) => {
        if (error instanceof BugError || !(error instanceof Error)) onBug(error);
        else log.warn('A certificate for a pod cannot be had yet', { projection: key, err: messageOf(error) });
      },
    });
  }

  /** What the volume's files are made of now, or upstream's words for why there is nothing yet. Never waits. */
  get(pod: Pod, ask: CertificateAsk): Credential | { error: string } {
    const uid = pod.metadata.uid ?? '';
    const key = `${uid}/${ask.volume}/${ask.source}`;
    let projection = this.#projections.get(key);
    if (projection === undefined) {
      const source = pod.spec.volumes?.find(({ name }) => name === ask.volume)?.projected?.sources?.[ask.source]?.podCertificate;
      if (source === undefined) return { error: `pod does not contain the named podCertificate projected volume source: ${key}` };
      projection = { key, pod, source, state: { is: 'none' }, keyPem: undefined };
      this.#projections.set(key, projection);
      this.#watching ??= this.#watch();
    }
    projection.pod = pod;
    this.#queue.add(key);
    return credentialOf(projection.state);
  }

  /** Forgets the keys and certificates of a pod. */
  release(uid: string): void {
    for (const projection of this.#of(uid)) {
      this.#projections.delete(projection.key);
      this.#queue.forget(projection.key);
    }
  }

  /** How many projections are in which state, for each signer. */
  states(): { signer: string; state: ReturnType<typeof stateWord>; count: number }[] {
    const nowMs = this.#options.clock.nowMs();
    const counts = new Map<string, { signer: string; state: ReturnType<typeof stateWord>; count: number }>();
    for (const { source, state } of this.#projections.values()) {
      const word = stateWord(state, nowMs);
      const key = `${source.signerName} ${word}`;
      counts.set(key, { signer: source.signerName, state: word, count: (counts.get(key)?.count ?? 0) + 1 });
    }
    return [...counts.values()];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort();
    await this.#queue[Symbol.asyncDispose]();
    await this.#watching;
  }

  #of(uid: string): Projection[] {
    return [...this.#projections.values()].filter(({ pod }) => pod.metadata.uid === uid);
  }

  async #drive(key: string, signal: AbortSignal): Promise<void> {
    const projection = this.#projections.get(key);
    if (projection === undefined) return;
    const { clock, rng, log, tell, onChange } = this.#options;
    const { pod } = projection;
    const jitterMs = rng.float() * maxJitterMs;
    const name = awaitedRequest(projection.state);
    const request = name === undefined ? undefined : this.#requests.get(`${pod.metadata.namespace ?? ''}/${name}`);
    const turn = certificateTurn(projection.state, request, clock.nowMs(), jitterMs);
    if (turn.state.is !== projection.state.is)
      log.debug(4, 'Pod certificate', { projection: key, from: projection.state.is, to: turn.state.is, request: name });
    projection.state = turn.state;
    for (const event of turn.events) tell(pod, event);
    if (turn.isNews) onChange(pod.metadata.uid ?? '');
    if (!turn.mustAsk) return;
    const made = await this.#request(projection, signal);
    projection.state = withRequest(projection.state, made, jitterMs);
    // The watch may have been quicker than the answer.
    this.#queue.add(key);
  }

  async #request(projection: Projection, signal: AbortSignal): Promise<{ keyPem: string; request: string; madeAtMs: number }> {
    const { api, clock, nodeName, nodeUid } = this.#options;
    const { pod, source } = projection;
    const namespace = pod.metadata.namespace ?? '';
    const accountName = pod.spec.serviceAccountName ?? 'default';
    const doing = `request a certificate for pod ${namespace}/${pod.metadata.name ?? ''}`;
    const node = nodeUid();
    if (node === undefined) throw new OpError('unavailable', doing, 'the node is not registered yet');
    const options = { timeoutMs: 10_000 };
    const account = await api.get<KubeObject>(serviceAccounts(namespace, accountName), options, signal);
    const keyPem = (projection.keyPem ??= await newKeyPem(source.keyType));
    const body: PodCertificateRequest = {
      apiVersion: 'certificates.k8s.io/v1',
      kind: 'PodCertificateRequest',
      metadata: {
        namespace,
        generateName: 'req-',
        ownerReferences: [{ apiVersion: 'v1', kind: 'Pod', name: pod.metadata.name ?? '', uid: pod.metadata.uid ?? '' }],
      },
      spec: {
        signerName: source.signerName,
        podName: pod.metadata.name ?? '',
        podUID: pod.metadata.uid ?? '',
        serviceAccountName: accountName,
        serviceAccountUID: account.metadata.uid ?? '',
        nodeName,
        nodeUID: node,
        ...(source.maxExpirationSeconds === undefined ? {} : { maxExpirationSeconds: source.maxExpirationSeconds }),
        stubPKCS10Request: proofOf(keyPem),
        ...(source.userAnnotations === undefined ? {} : { unverifiedUserAnnotations: source.userAnnotations }),
      },
    };
    const made = await api.create<PodCertificateRequest>(podCertificateRequests(namespace), body, options, signal);
    projection.keyPem = undefined;
    return { keyPem, request: made.metadata.name ?? '', madeAtMs: clock.nowMs() };
  }

  async #watch(): Promise<void> {
    const { api, nodeName, log } = this.#options;
    const wake = (request: PodCertificateRequest): void => {
      for (const { key } of this.#of(request.spec.podUID)) this.#queue.add(key);
    };
    await api.reflect<PodCertificateRequest>(
      podCertificateRequests(),
      // A node may read its own alone.
      { fieldSelector: `spec.nodeName=${nodeName}` },
      {
        replaced: (items) => {
          this.#requests.clear();
          for (const item of items) {
            this.#requests.set(nameOf(item), item);
            wake(item);
          }
        },
        changed: (type, item) => {
          if (type === 'DELETED') this.#requests.delete(nameOf(item));
          else this.#requests.set(nameOf(item), item);
          wake(item);
        },
        trouble: (error) => log.debug(2, 'Watch of PodCertificateRequests is in trouble', { err: messageOf(error) }),
        trim: ({ metadata: { name, namespace }, spec, status }) => ({ metadata: { name, namespace }, spec, ...(status === undefined ? {} : { status }) }),
      },
      this.#closing.signal,
    );
  }
}

function nameOf({ metadata }: PodCertificateRequest): string {
  return `${metadata.namespace ?? ''}/${metadata.name ?? ''}`;
}

const makeKeys = promisify(generateKeyPair);

/** A new private key, PKCS #8 PEM, made beside the main loop: an RSA key takes long. Throws OpError `invalid`. */
async function newKeyPem(keyType: string): Promise<string> {
  const { privateKey } = await newKeys(keyType);
  return privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
}

function newKeys(keyType: string) {
  switch (keyType) {
    case 'RSA3072':
      return makeKeys('rsa', { modulusLength: 3072 });
    case 'RSA4096':
      return makeKeys('rsa', { modulusLength: 4096 });
    case 'ECDSAP256':
      return makeKeys('ec', { namedCurve: 'P-256' });
    case 'ECDSAP384':
      return makeKeys('ec', { namedCurve: 'P-384' });
    case 'ECDSAP521':
      return makeKeys('ec', { namedCurve: 'P-521' });
    case 'ED25519':
      return makeKeys('ed25519');
    default:
      throw new OpError('invalid', 'make a key', `unknown key type ${JSON.stringify(keyType)}`);
  }
}

/** A request of nothing, signed: whoever made it has the key. Base64 of its DER. */
function proofOf(keyPem: string): string {
  const [der] = unpem('CERTIFICATE REQUEST', certificateRequest({ subject: { commonName: '' } }, keyPem));
  return Buffer.from(der ?? []).toString('base64');
}
