import type { PodCertificateRequest } from '../../proto/kube/types.ts';
import { pemBlock, pemBodies } from './pem.ts';
import type { EventText } from './types.ts';

/** What a podCertificate projection writes: the private key (PKCS #8, a secret) and the chain, leaf first, both PEM. */
export interface Credential {
  readonly keyPem: string;
  readonly chainPem: string;
}

/** Names one projection of a pod. */
export interface CertificateAsk {
  readonly volume: string;
  /** Index among the sources of the volume. */
  readonly source: number;
}

interface Issued extends Credential {
  /** When to ask for the next one: what the signer said, later by chance. */
  readonly refreshAtMs: number;
  readonly notAfterMs: number;
  readonly told: { readonly overdue: boolean; readonly expired: boolean };
}

/** A request on its way. When it is not seen by `abandonAtMs` somebody has deleted it. */
interface Asked {
  readonly keyPem: string;
  readonly request: string;
  readonly abandonAtMs: number;
}

/**
 * One projection's certificate. A refusal is final. A new process begins anew: the key is nowhere but in the volume
 * and in memory.
 */
export type CertificateState =
  | { readonly is: 'none' }
  | { readonly is: 'asked'; readonly asked: Asked }
  | { readonly is: 'issued'; readonly held: Issued }
  | { readonly is: 'renewing'; readonly held: Issued; readonly asked: Asked }
  | { readonly is: 'denied' | 'failed'; readonly reason: string; readonly message: string };

export interface CertificateTurn {
  readonly state: CertificateState;
  readonly events: readonly EventText[];
  /** A new request is to be made; when it is, `withRequest` says what comes of the state. */
  readonly mustAsk: boolean;
  /** What is to be written has changed. */
  readonly isNews: boolean;
}

const abandonAfterMs = 10 * 60_000;
const overdueAfterMs = 10 * 60_000;
/** Certificates that were issued together are not all renewed in the same moment. */
export const maxJitterMs = 5 * 60_000;

/** What a look at the own request brings: undefined while it is not seen. `jitterMs` delays a renewal. */
export function certificateTurn(state: CertificateState, request: PodCertificateRequest | undefined, nowMs: number, jitterMs: number): CertificateTurn {
  switch (state.is) {
    case 'none':
      return { state, events: [], mustAsk: true, isNews: false };
    case 'asked':
      if (request === undefined) return quiet(nowMs > state.asked.abandonAtMs ? { is: 'none' } : state);
      return ended(state.asked, request, jitterMs) ?? quiet(state);
    case 'issued': {
      if (nowMs < state.held.refreshAtMs) return quiet(state);
      const late = lateness(state.held, nowMs);
      return { state: { is: 'issued', held: late.held }, events: late.events, mustAsk: true, isNews: false };
    }
    case 'renewing': {
      if (request === undefined) return quiet(nowMs > state.asked.abandonAtMs ? { is: 'issued', held: state.held } : state);
      const end = ended(state.asked, request, jitterMs);
      if (end !== null) return end;
      const late = lateness(state.held, nowMs);
      return { state: { ...state, held: late.held }, events: late.events, mustAsk: false, isNews: false };
    }
    case 'denied':
    case 'failed':
      return quiet(state);
  }
}

/** The state once a request has been made for it. */
export function withRequest(state: CertificateState, made: { keyPem: string; request: string; madeAtMs: number }, jitterMs: number): CertificateState {
  const asked: Asked = { keyPem: made.keyPem, request: made.request, abandonAtMs: made.madeAtMs + abandonAfterMs + jitterMs };
  return state.is === 'issued' ? { is: 'renewing', held: state.held, asked } : { is: 'asked', asked };
}

/** The name of the request whose end is awaited. */
export function awaitedRequest(state: CertificateState): string | undefined {
  return state.is === 'asked' || state.is === 'renewing' ? state.asked.request : undefined;
}

/** What may be written now, or upstream's words for why nothing can. */
export function credentialOf(state: CertificateState): Credential | { readonly error: string } {
  switch (state.is) {
    case 'none':
    case 'asked':
      return { error: 'credential bundle is not issued yet' };
    case 'issued':
    case 'renewing':
      return { keyPem: state.held.keyPem, chainPem: state.held.chainPem };
    case 'denied':
    case 'failed':
      return {
        error: `PodCertificateRequest was permanently ${state.is}: reason=${JSON.stringify(state.reason)} message=${JSON.stringify(state.message)}`,
      };
  }
}

/** The state in the words of the metric kubelet_podcertificate_states. */
export function stateWord(state: CertificateState, nowMs: number): 'not_yet_issued' | 'denied' | 'failed' | 'fresh' | 'overdue_for_refresh' | 'expired' {
  if (state.is === 'none' || state.is === 'asked') return 'not_yet_issued';
  if (!('held' in state)) return state.is;
  if (nowMs > state.held.notAfterMs) return 'expired';
  return nowMs > state.held.refreshAtMs + overdueAfterMs ? 'overdue_for_refresh' : 'fresh';
}

function quiet(state: CertificateState): CertificateTurn {
  return { state, events: [], mustAsk: state.is === 'none', isNews: false };
}

/** The end of a request: issued, denied or failed; null while it goes on. */
function ended(asked: Asked, request: PodCertificateRequest, jitterMs: number): CertificateTurn | null {
  const { status } = request;
  const end = (status?.conditions ?? []).find(({ type }) => type === 'Issued' || type === 'Denied' || type === 'Failed');
  if (end === undefined) return null;
  if (end.type === 'Issued') {
    const chainPem = pemBodies(status?.certificateChain ?? '')
      .map((body) => pemBlock('CERTIFICATE', body))
      .join('');
    const held: Issued = {
      keyPem: asked.keyPem,
      chainPem,
      refreshAtMs: timeMs(status?.beginRefreshAt) + jitterMs,
      notAfterMs: timeMs(status?.notAfter),
      told: { overdue: false, expired: false },
    };
    return { state: { is: 'issued', held }, events: [], mustAsk: false, isNews: true };
  }
  const { reason, message } = end;
  const verb = end.type === 'Denied' ? 'was denied' : 'failed';
  const text = `PodCertificateRequest ${request.metadata.namespace ?? ''}/${request.metadata.name ?? ''} ${verb}, reason=${JSON.stringify(reason)}, message=${JSON.stringify(message)}`;
  return {
    state: { is: end.type === 'Denied' ? 'denied' : 'failed', reason, message },
    events: [{ type: 'Warning', reason: end.type, message: text }],
    mustAsk: false,
    isNews: true,
  };
}

/** Tells once that a renewal is late, and once that the certificate has expired. */
function lateness(held: Issued, nowMs: number): { held: Issued; events: EventText[] } {
  const overdue = nowMs > held.refreshAtMs + overdueAfterMs;
  const expired = nowMs > held.notAfterMs;
  const events: EventText[] = [];
  if (overdue && !held.told.overdue) events.push({ type: 'Warning', reason: 'CertificateOverdueForRefresh', message: 'PodCertificate refresh overdue' });
  if (expired && !held.told.expired) events.push({ type: 'Warning', reason: 'CertificateExpired', message: 'PodCertificate expired' });
  return { held: { ...held, told: { overdue: overdue || held.told.overdue, expired: expired || held.told.expired } }, events };
}

/** A time that is not there never comes. */
function timeMs(text: string | undefined): number {
  const ms = Date.parse(text ?? '');
  return Number.isNaN(ms) ? Number.POSITIVE_INFINITY : ms;
}
