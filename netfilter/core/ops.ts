import type { Family } from './ip.ts';
import type { Protocol } from './names.ts';

/**
 * Operations on one nftables table, as data. Two encoders write them: `render-nft-text.ts` for people and for
 * `nft -f`, `encode-netlink.ts` for the kernel. The vocabulary is what the proxy needs and no more.
 */

export const TABLE = 'kube-proxy';

/** A field of a set's key, or of a packet. `random` is a number that a rule drew. */
export type FieldType = 'address' | 'protocol' | 'port' | 'random';
export type PacketField = 'saddr' | 'daddr' | 'l4proto' | 'dport';

export type Verdict = { kind: 'drop' } | { kind: 'goto'; chain: string } | { kind: 'jump'; chain: string };

export interface NetworkTarget {
  address: string;
  port: number;
}

/** One condition or action; a rule is a sequence of them. */
export type Statement =
  | { kind: 'address'; field: 'saddr' | 'daddr'; not?: boolean; cidr: string }
  | { kind: 'address-in'; field: 'saddr' | 'daddr'; not?: boolean; cidrs: readonly string[] }
  | { kind: 'in-set'; fields: readonly PacketField[]; set: string }
  | { kind: 'protocol'; protocol: Protocol }
  | { kind: 'input-interface'; not?: boolean; name: string; prefix: boolean }
  | { kind: 'connection-new' }
  | { kind: 'connection-dnated' }
  | { kind: 'address-local'; field: 'saddr' | 'daddr' }
  | { kind: 'marked'; bits: number }
  | { kind: 'set-mark'; bits: number }
  | { kind: 'toggle-mark'; bits: number }
  | { kind: 'verdict-map'; fields: readonly PacketField[]; map: string }
  | { kind: 'verdict'; verdict: Verdict }
  | { kind: 'count'; counter: string }
  | { kind: 'reject' }
  | { kind: 'masquerade' }
  | { kind: 'dnat'; target: NetworkTarget }
  /** One of `count` elements of a map, from number `first` on. */
  | { kind: 'dnat-random'; first: number; count: number; map: string }
  | { kind: 'goto-random'; chains: readonly string[] }
  | { kind: 'remember'; field: 'saddr'; set: string };

export interface Rule {
  statements: readonly Statement[];
  comment?: string;
}

export interface BaseChain {
  type: 'filter' | 'nat';
  hook: 'prerouting' | 'input' | 'forward' | 'output' | 'postrouting';
  priority: number;
}

export interface SetSpec {
  name: string;
  key: readonly FieldType[];
  /** A map to verdicts instead of a set. */
  verdicts?: boolean;
  /** A map to addresses with ports of this protocol instead of a set. */
  targets?: Protocol;
  /** Elements are added by packets and expire after this time. */
  timeoutSeconds?: number;
  comment?: string;
}

export interface Element {
  key: readonly string[];
  verdict?: Verdict;
  target?: NetworkTarget;
  comment?: string;
}

export type Op =
  | { op: 'add-table'; comment: string }
  | { op: 'delete-table' }
  | { op: 'add-chain'; chain: string; base?: BaseChain; comment?: string }
  | { op: 'flush-chain'; chain: string }
  | { op: 'delete-chain'; chain: string }
  | { op: 'add-rule'; chain: string; rule: Rule }
  | { op: 'add-set'; set: SetSpec }
  | { op: 'flush-set'; set: SetSpec }
  | { op: 'delete-set'; set: SetSpec }
  | { op: 'add-element'; set: SetSpec; element: Element }
  | { op: 'delete-element'; set: SetSpec; element: Element }
  /** Endpoints under the numbers from `first` on. */
  | { op: 'add-targets'; set: SetSpec; first: number; targets: readonly NetworkTarget[] }
  | { op: 'add-counter'; counter: string }
  | { op: 'delete-counter'; counter: string };

/** One transaction on one table: all of it or nothing. */
export interface Transaction {
  family: Family;
  ops: readonly Op[];
}
