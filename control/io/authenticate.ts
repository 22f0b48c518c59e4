import type { PeerCertificate } from 'node:tls';
import type { User } from '../core/authorize.ts';
import { unauthorized } from '../core/failure.ts';
import type { Tokens } from './tokens.ts';

export const ANONYMOUS: User = { name: 'system:anonymous', groups: ['system:unauthenticated'] };

/** The process itself: controllers, scheduler and DNS of this control plane. */
export const LOOPBACK: User = { name: 'system:apiserver', groups: ['system:masters', 'system:authenticated'] };

export interface Credentials {
  /** The client's certificate and whether our CA vouches for it. */
  certificate: PeerCertificate | undefined;
  isVouchedFor: boolean;
  authorization: string | undefined;
}

const many = (value: string | string[] | undefined): string[] => (value === undefined ? [] : Array.isArray(value) ? value : [value]);

/** Who is asking? Throws a 401 for credentials that are there and not good; nobody at all is anonymous. */
export function authenticate(tokens: Tokens, from: Credentials): User {
  const subject = from.certificate?.subject as { CN?: string; O?: string | string[] } | undefined;
  if (subject?.CN !== undefined && from.isVouchedFor) return { name: subject.CN, groups: [...many(subject.O), 'system:authenticated'] };
  const bearer = /^bearer\s+(\S+)$/i.exec(from.authorization ?? '')?.[1];
  if (bearer !== undefined) {
    const verified = tokens.verify(bearer);
    if (verified === undefined) throw unauthorized();
    return verified.user;
  }
  if (from.certificate !== undefined && subject?.CN !== undefined) throw unauthorized();
  return ANONYMOUS;
}
