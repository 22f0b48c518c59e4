import { isWrite, type AuditEvent } from './audit.ts';

/** Writes by writer and kind, `{ kubelet: { 'patch pods/status': 4, 'delete pods': 1 } }`. */
export type Ledger = Readonly<Record<string, Readonly<Record<string, number>>>>;

/** Not counted: Events and token requests, which are counted apart, and Leases. */
const APART = new Set(['events', 'leases', 'serviceaccounts/token']);

/** Who a user name is: a kubelet, or the control plane's component. */
function writerOf(user: string): string {
  if (user.startsWith('system:node:')) return 'kubelet';
  if (user === 'kubernetes-admin') return 'user';
  return user.replace(/^system:serviceaccount:kube-system:/, '').replace(/^system:/, '');
}

/** The writes that concern one pod of a namespace. */
export function ledgerOf(events: readonly AuditEvent[], namespace: string, pod: string): Ledger {
  const ledger: Record<string, Record<string, number>> = {};
  for (const event of events) {
    if (!isWrite(event) || event.namespace !== namespace || event.name !== pod || APART.has(event.resource)) continue;
    const writer = (ledger[writerOf(event.user)] ??= {});
    const kind = `${event.verb} ${event.resource}`;
    writer[kind] = (writer[kind] ?? 0) + 1;
  }
  return ledger;
}

export const sumOf = (counts: Readonly<Record<string, number>> = {}): number => Object.values(counts).reduce((sum, count) => sum + count, 0);

/** How often a node created Events or asked for tokens in a namespace. */
export function apartOf(events: readonly AuditEvent[], namespace: string, node: string): { events: number; tokens: number } {
  const own = events.filter((event) => isWrite(event) && event.namespace === namespace && event.user === `system:node:${node}`);
  return {
    events: own.filter((event) => event.resource === 'events').length,
    tokens: own.filter((event) => event.resource === 'serviceaccounts/token').length,
  };
}
