import { createHash, createPrivateKey, createPublicKey, sign, verify } from 'node:crypto';
import { rfc3339 } from '../../base/clock.ts';
import type { User } from '../core/authorize.ts';
import { forbidden, invalid, notFound } from '../core/failure.ts';
import type { Obj } from '../core/json.ts';
import type { Kernel } from './kernel.ts';

/** Service account tokens: JWTs (RFC 7519, ES256) bound to an account and, where asked for, to a pod and its node. */
export interface Tokens {
  /** The answer to a TokenRequest. */
  issue(namespace: string, name: string, request: Obj): Obj;
  /** Who a bearer token speaks for; undefined when it is not valid for any of `audiences`. */
  verify(token: string, audiences?: readonly string[]): { user: User; audiences: readonly string[] } | undefined;
  /** For clients that check tokens themselves. */
  keySet(): Obj;
  readonly issuer: string;
}

const SHORTEST_SECONDS = 600;
const LONGEST_SECONDS = 2 ** 32;
/** A token of this life is one the kubelet renews; its text stays good for a year so that old clients do not break. */
const RENEWED_SECONDS = 3607;
const EXTENDED_SECONDS = 365 * 86_400;

const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');

export function createTokens(kernel: Kernel, privateKeyPem: string): Tokens {
  const key = createPrivateKey(privateKeyPem);
  const publicKey = createPublicKey(key);
  const keyId = createHash('sha256')
    .update(publicKey.export({ type: 'spki', format: 'der' }))
    .digest('base64url');
  const issuer = `https://kubernetes.default.svc.${kernel.config.clusterDomain}`;
  const { view, clock } = kernel;

  const boundTo = (namespace: string, reference: Obj | undefined): { claims: Obj; node: string | undefined } => {
    if (reference === undefined) return { claims: {}, node: undefined };
    const resource = { Pod: 'pods', Secret: 'secrets', Node: 'nodes' }[reference['kind'] as string];
    if (resource === undefined)
      throw invalid('authentication.k8s.io', 'TokenRequest', '', [
        { reason: 'FieldValueInvalid', field: 'spec.boundObjectRef', message: `Invalid value: ${JSON.stringify(reference)}: cannot bind to this kind` },
      ]);
    const object = view.get('', resource, resource === 'nodes' ? '' : namespace, reference['name']);
    if (object === undefined) throw notFound({ group: '', resource }, reference['name']);
    const uid = object['metadata'].uid;
    if ((reference['uid'] ?? '') !== '' && reference['uid'] !== uid) {
      throw forbidden(
        { group: '', resource: 'serviceaccounts' },
        '',
        `the UID in the bound object reference (${reference['uid']}) does not match the UID in record. The object might have been deleted and then recreated`,
      );
    }
    return {
      claims: { [String(reference['kind']).toLowerCase()]: { name: reference['name'], uid } },
      node: resource === 'pods' ? object['spec'].nodeName : undefined,
    };
  };

  const issue = (namespace: string, name: string, request: Obj): Obj => {
    const account = view.get('', 'serviceaccounts', namespace, name);
    if (account === undefined) throw notFound({ group: '', resource: 'serviceaccounts' }, name);
    const spec: Obj = request['spec'] ?? {};
    const seconds: number = spec['expirationSeconds'] ?? 3600;
    if (seconds < SHORTEST_SECONDS || seconds > LONGEST_SECONDS) {
      const why = seconds < SHORTEST_SECONDS ? 'may not specify a duration less than 10 minutes' : 'may not specify a duration larger than 2^32 seconds';
      throw invalid('authentication.k8s.io', 'TokenRequest', '', [
        { reason: 'FieldValueInvalid', field: 'spec.expirationSeconds', message: `Invalid value: ${seconds}: ${why}` },
      ]);
    }
    const audiences: string[] = (spec['audiences'] ?? []).length > 0 ? spec['audiences'] : [issuer];
    const { claims, node } = boundTo(namespace, spec['boundObjectRef']);
    const nodeObject = node === undefined ? undefined : view.get('', 'nodes', '', node);
    const now = Math.floor(clock.nowMs() / 1000);
    const isRenewed = seconds === RENEWED_SECONDS;
    const id = kernel.rng.uuid();
    const own: Obj = { namespace, ...claims, serviceaccount: { name, uid: account['metadata'].uid } };
    if (node !== undefined) own['node'] = { name: node, uid: nodeObject?.['metadata'].uid };
    if (isRenewed) own['warnafter'] = now + seconds;
    const payload = {
      aud: audiences,
      exp: now + (isRenewed ? EXTENDED_SECONDS : seconds),
      iat: now,
      iss: issuer,
      jti: id,
      'kubernetes.io': own,
      nbf: now,
      sub: `system:serviceaccount:${namespace}:${name}`,
    };
    const text = `${encode({ alg: 'ES256', kid: keyId })}.${encode(payload)}`;
    const signature = sign('sha256', Buffer.from(text), { key, dsaEncoding: 'ieee-p1363' }).toString('base64url');
    return {
      kind: 'TokenRequest',
      apiVersion: 'authentication.k8s.io/v1',
      metadata: { name, namespace, creationTimestamp: rfc3339(clock.nowMs()) },
      spec: { ...spec, audiences, expirationSeconds: seconds },
      status: { token: `${text}.${signature}`, expirationTimestamp: rfc3339((now + seconds) * 1000) },
    };
  };

  const payloadOf = (token: string): Obj | undefined => {
    const parts = token.split('.');
    if (parts.length !== 3) return undefined;
    try {
      const head = JSON.parse(Buffer.from(parts[0]!, 'base64url').toString()) as Obj;
      if (head['alg'] !== 'ES256') return undefined;
      const isSigned = verify(
        'sha256',
        Buffer.from(`${parts[0]}.${parts[1]}`),
        { key: publicKey, dsaEncoding: 'ieee-p1363' },
        Buffer.from(parts[2]!, 'base64url'),
      );
      return isSigned ? (JSON.parse(Buffer.from(parts[1]!, 'base64url').toString()) as Obj) : undefined;
    } catch {
      // Anything may stand in a header of a stranger: what cannot be read is no token.
      return undefined;
    }
  };

  return {
    issuer,
    issue,
    verify(token, audiences = [issuer]) {
      const payload = payloadOf(token);
      if (payload === undefined) return undefined;
      const now = clock.nowMs() / 1000;
      // Clocks of a minute's difference are common among nodes.
      if (payload['iss'] !== issuer || payload['exp'] < now || payload['nbf'] > now + 60) return undefined;
      const matching = audiences.filter((audience) => (payload['aud'] ?? []).includes(audience));
      if (matching.length === 0) return undefined;
      const own: Obj = payload['kubernetes.io'] ?? {};
      const { namespace, serviceaccount, pod, node, secret } = own;
      const account = view.get('', 'serviceaccounts', namespace, serviceaccount?.name);
      if (account?.['metadata'].uid !== serviceaccount?.uid || account?.['metadata'].deletionTimestamp !== undefined) return undefined;
      if (pod !== undefined && view.get('', 'pods', namespace, pod.name)?.['metadata'].uid !== pod.uid) return undefined;
      if (secret !== undefined && view.get('', 'secrets', namespace, secret.name)?.['metadata'].uid !== secret.uid) return undefined;
      const extra: Record<string, string[]> = { 'authentication.kubernetes.io/credential-id': [`JTI=${payload['jti']}`] };
      for (const [kind, value] of [
        ['pod', pod],
        ['node', node],
      ] as const) {
        if (value === undefined) continue;
        extra[`authentication.kubernetes.io/${kind}-name`] = [value.name];
        if (value.uid !== undefined) extra[`authentication.kubernetes.io/${kind}-uid`] = [value.uid];
      }
      const groups = ['system:serviceaccounts', `system:serviceaccounts:${namespace}`, 'system:authenticated'];
      return { user: { name: payload['sub'], uid: serviceaccount.uid, groups, extra }, audiences: matching };
    },
    keySet: () => ({ keys: [{ ...publicKey.export({ format: 'jwk' }), use: 'sig', kid: keyId, alg: 'ES256' }] }),
  };
}
