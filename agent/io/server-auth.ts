import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { TLSSocket } from 'node:tls';
import type { Clock } from '../../base/clock.ts';
import { subjectAccessReviews, tokenReviews } from '../../base/kubeapi/refs.ts';
import type { KubeApi, KubeObject } from '../../base/kubeapi/types.ts';
import type { NodeAttributes } from '../core/server-paths.ts';
import type { AuthMetrics } from './auth-metrics.ts';
import { BoundedCache } from './server-cache.ts';

export interface UserInfo {
  readonly name: string;
  readonly uid: string;
  readonly groups: readonly string[];
  readonly extra: Readonly<Record<string, readonly string[]>>;
}

export interface ServerAuthOptions {
  clock: Clock;
  api: KubeApi;
  nodeName: string;
  /** A client CA is configured: certificates it signed are identities. */
  x509: boolean;
  anonymous: boolean;
  /** `authentication.webhook`: bearer tokens are shown to the API server. */
  tokenWebhook: { enabled: boolean; cacheTtlMs: number };
  metrics?: Pick<AuthMetrics, 'review' | 'certificate'>;
  authorization: 'AlwaysAllow' | { allowedTtlMs: number; deniedTtlMs: number };
}

export interface ServerAuth {
  /**
   * Null: nobody we know. Throws when the API server cannot be asked. A question may be shared by several requests,
   * so it ends by its own deadline and not with one of them.
   */
  authenticate(request: IncomingMessage): Promise<UserInfo | null>;
  /** The request may be made when one of the attributes is allowed. */
  authorize(user: UserInfo, attributes: readonly NodeAttributes[]): Promise<boolean>;
}

const anonymousUser: UserInfo = { name: 'system:anonymous', uid: '', groups: ['system:unauthenticated'], extra: {} };
const reviewTimeoutMs = 10_000;

interface TokenReview extends KubeObject {
  spec: { token: string };
  status?: { authenticated?: boolean; user?: { username?: string; uid?: string; groups?: string[]; extra?: Record<string, string[]> } };
}
interface SubjectAccessReview extends KubeObject {
  spec: object;
  status?: { allowed?: boolean };
}

/** Delegated authentication and authorization, as the kubelet does it; answers of the API server are remembered. */
export function createServerAuth(options: ServerAuthOptions): ServerAuth {
  const { clock, api } = options;
  const counted = <T>(kind: 'authn' | 'authz', work: () => Promise<T>): Promise<T> => options.metrics?.review(kind, work) ?? work();
  const tokens = new BoundedCache<UserInfo | null>(clock, 1_024);
  const decisions = new BoundedCache<boolean>(clock, 4_096);

  const reviewToken = async (token: string): Promise<{ value: UserInfo | null; ttlMs: number }> => {
    const review = { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenReview', metadata: {}, spec: { token } };
    const { status } = await counted('authn', () => api.create<TokenReview>(tokenReviews(), review, { timeoutMs: reviewTimeoutMs }));
    const user = status?.authenticated === true ? status.user : undefined;
    const value = user === undefined ? null : authenticated(user.username ?? '', user.groups ?? [], user.uid ?? '', user.extra ?? {});
    return { value, ttlMs: options.tokenWebhook.cacheTtlMs };
  };

  const reviewAccess = async (user: UserInfo, attributes: NodeAttributes): Promise<{ value: boolean; ttlMs: number }> => {
    if (options.authorization === 'AlwaysAllow') return { value: true, ttlMs: 0 };
    const { verb, subresource } = attributes;
    const review = {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SubjectAccessReview',
      metadata: {},
      spec: {
        user: user.name,
        ...(user.uid === '' ? {} : { uid: user.uid }),
        groups: user.groups,
        ...(Object.keys(user.extra).length === 0 ? {} : { extra: user.extra }),
        resourceAttributes: { verb, version: 'v1', resource: 'nodes', subresource, name: options.nodeName },
      },
    };
    const { status } = await counted('authz', () => api.create<SubjectAccessReview>(subjectAccessReviews(), review, { timeoutMs: reviewTimeoutMs }));
    const allowed = status?.allowed === true;
    return { value: allowed, ttlMs: allowed ? options.authorization.allowedTtlMs : options.authorization.deniedTtlMs };
  };

  return {
    async authenticate(request) {
      const byCertificate = options.x509 ? certificateUser(request.socket as TLSSocket) : null;
      if (byCertificate !== null) {
        options.metrics?.certificate(Date.parse((request.socket as TLSSocket).getPeerCertificate().valid_to));
        return byCertificate;
      }
      const token = /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? '')?.[1];
      // Without the webhook nobody reads tokens: who sends one is as anonymous as who does not.
      if (token !== undefined && options.tokenWebhook.enabled) {
        // The key is a digest: a heap dump shows no tokens for longer than a request lives.
        return tokens.get(createHash('sha256').update(token).digest('base64'), () => reviewToken(token));
      }
      return options.anonymous ? anonymousUser : null;
    },
    async authorize(user, attributes) {
      if (options.authorization === 'AlwaysAllow') return true;
      for (const each of attributes) {
        const key = JSON.stringify([user.name, user.uid, user.groups, user.extra, each.verb, each.subresource]);
        if (await decisions.get(key, () => reviewAccess(user, each))) return true;
      }
      return false;
    },
  };
}

function authenticated(name: string, groups: readonly string[], uid = '', extra: Record<string, readonly string[]> = {}): UserInfo {
  const all = groups.includes('system:authenticated') ? groups : [...groups, 'system:authenticated'];
  return { name, uid, groups: all, extra };
}

/** CN is the user, each O a group. Null without a certificate, with one the client CA did not sign, or that names nobody. */
function certificateUser(socket: TLSSocket): UserInfo | null {
  if (!socket.authorized) return null;
  const { subject } = socket.getPeerCertificate();
  const name = [subject?.CN ?? ''].flat().at(-1) ?? '';
  if (name === '') return null;
  return authenticated(name, [subject.O ?? []].flat());
}
