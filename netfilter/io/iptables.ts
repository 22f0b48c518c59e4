import { hasCode, OpError } from '../../base/errors.ts';
import type { RunResult, Sys } from '../../base/sys/types.ts';
import type { Family } from '../core/ip.ts';
import type { TableName } from '../core/iptables-table.ts';

/** The seam to the iptables programs. Real: started through `sys`; fake: `fake-iptables.ts`. */
export interface Iptables {
  /**
   * How many lines one transaction should have. The nft kind looks every chain that a transaction names up in a sorted
   * list, line by line, so its time grows with the square of the lines; and the kernel's lock is held for each. The legacy
   * kind reads and replaces the whole table each time: there it is Infinity.
   */
  readonly linesAtOnce: number;
  /**
   * Runs `iptables-restore --noflush` once; parts of the input, of whole transactions each, are asked for as it reads
   * them. A refusal is a value; throws when aborted, and what the input throws.
   */
  restore(family: Family, input: string | AsyncIterable<string>, signal?: AbortSignal): Promise<RestoreResult>;
  /** One table as `iptables-save` prints it; all that are there without a table. */
  save(family: Family, table: TableName | null, signal?: AbortSignal): Promise<string>;
  /** Whether a chain is there; `unknown` when the lock or the kernel was busy. */
  hasChain(family: Family, table: TableName, chain: string, signal?: AbortSignal): Promise<boolean | 'unknown'>;
}

/** @param failedLines which lines of the input were refused, from 0, as far as the program says */
export type RestoreResult = { ok: true } | { ok: false; error: OpError; failedLines: readonly number[] };

/** Which of the programs: what the distribution chose (''), or one of the two kinds by name. */
export type Variant = '' | '-nft' | '-legacy';

const NFT_LINES_AT_ONCE = 1000;
const RESTORE_TIMEOUT_MS = 300_000;
/** Working out what is fed to it counts as well. */
const FEED_TIMEOUT_MS = 1_800_000;
const TIMEOUT_MS = 60_000;
const MAX_SAVED_BYTES = 512 << 20;
/** Somebody else holds the lock: the program tries again for this long, then it is our turn to wait. */
const WAIT = ['-w', '5'];
/** Exit code of a program that could not get the lock or memory. */
const RESOURCE_PROBLEM = 4;

function program(family: Family, variant: Variant, what: '' | '-save' | '-restore'): string {
  return `${family === 'ip' ? 'iptables' : 'ip6tables'}${variant}${what}`;
}

function text(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('utf8');
}

/** The kinds of the program name the line in their own words: "line 7: RULE_APPEND failed", "line 7 failed", "Error occurred at line: 7". */
export function failedLines(stderr: string): number[] {
  return [...new Set([...stderr.matchAll(/\bline:? (\d+)(?=:| failed|$)/gm)].map((match) => Number(match[1]) - 1))];
}

function failure(doing: string, result: RunResult): OpError {
  const words = result.timedOut ? 'no answer in time' : text(result.stderr).trim().split('\n').slice(0, 4).join(' ');
  return new OpError(result.timedOut ? 'deadline' : 'failed', doing, words === '' ? `exit code ${result.code}` : words);
}

/** @param isLegacy which kind the programs of that variant are; by default what the variant's name says */
export function createIptables(sys: Sys, options: { netns?: string; variant?: Variant; isLegacy?: boolean } = {}): Iptables {
  const variant = options.variant ?? '';
  const isLegacy = options.isLegacy ?? variant === '-legacy';
  const where = options.netns === undefined ? {} : { netns: options.netns };
  return {
    linesAtOnce: isLegacy ? Infinity : NFT_LINES_AT_ONCE,
    async restore(family, input, signal) {
      const argv = [program(family, variant, '-restore'), ...WAIT, '--noflush'];
      const timeoutMs = typeof input === 'string' ? RESTORE_TIMEOUT_MS : FEED_TIMEOUT_MS;
      try {
        const result = await sys.run({ argv, stdin: input, timeoutMs, ...where }, signal);
        if (result.code === 0) return { ok: true };
        return { ok: false, error: failure('write iptables rules', result), failedLines: failedLines(text(result.stderr)) };
      } catch (error) {
        if (!(error instanceof OpError) || hasCode(error, 'aborted')) throw error;
        return { ok: false, error, failedLines: [] };
      }
    },
    async save(family, table, signal) {
      const argv = [program(family, variant, '-save'), ...(table === null ? [] : ['-t', table])];
      const result = await sys.run({ argv, timeoutMs: TIMEOUT_MS, maxOutputBytes: MAX_SAVED_BYTES, ...where }, signal);
      if (result.code !== 0 || result.truncated) throw failure('read iptables rules', result);
      return text(result.stdout);
    },
    async hasChain(family, table, chain, signal) {
      const argv = [program(family, variant, ''), ...WAIT, '-t', table, '-S', chain];
      const result = await sys.run({ argv, timeoutMs: TIMEOUT_MS, ...where }, signal);
      if (result.code === 0) return true;
      return result.timedOut || result.code === null || result.code === RESOURCE_PROBLEM ? 'unknown' : false;
    },
  };
}

/** Output of `-save` of both families, or null without such a program. What a kernel lacks counts as empty. */
async function savedBy(sys: Sys, variant: Variant, table: TableName | null, where: { netns?: string }): Promise<string | null> {
  const saved = async (family: Family): Promise<string> => {
    const argv = [program(family, variant, '-save'), ...(table === null ? [] : ['-t', table])];
    return text((await sys.run({ argv, timeoutMs: TIMEOUT_MS, maxOutputBytes: MAX_SAVED_BYTES, ...where })).stdout);
  };
  try {
    return (await Promise.all([saved('ip'), saved('ip6')])).join('');
  } catch (error) {
    if (hasCode(error, 'not-found')) return null;
    throw error;
  }
}

const OF_KUBELET = /^:(KUBE-IPTABLES-HINT|KUBE-KUBELET-CANARY) /m;

/**
 * Which variant the node uses, as upstream's images tell it (iptables-wrappers): the kubelet leaves a hint in one of
 * them; without one, the variant with more rules; without any rules, what the distribution chose. Asking the legacy
 * programs for one table would make it, so they are asked for all that are there.
 */
export async function detectVariant(sys: Sys, where: { netns?: string } = {}): Promise<Variant> {
  const [nft, legacy] = await Promise.all([savedBy(sys, '-nft', 'mangle', where), savedBy(sys, '-legacy', null, where)]);
  if (nft !== null && OF_KUBELET.test(nft)) return '-nft';
  if (legacy !== null && OF_KUBELET.test(legacy)) return '-legacy';
  if (nft === null || legacy === null) return '';
  const count = (saved: string): number => saved.match(/^-/gm)?.length ?? 0;
  const counts = { nft: count((await savedBy(sys, '-nft', null, where)) ?? ''), legacy: count(legacy) };
  if (counts.nft === counts.legacy) return '';
  return counts.legacy > counts.nft ? '-legacy' : '-nft';
}

/** Whether the programs of a variant are the legacy kind: newer ones say so, those from before there were two do not. */
export async function isLegacyKind(sys: Sys, variant: Variant, where: { netns?: string } = {}): Promise<boolean> {
  if (variant !== '') return variant === '-legacy';
  try {
    const result = await sys.run({ argv: ['iptables', '--version'], timeoutMs: TIMEOUT_MS, ...where });
    return !text(result.stdout).includes('nf_tables');
  } catch (error) {
    if (hasCode(error, 'not-found')) return false;
    throw error;
  }
}

/** Families whose nat table the programs can read; throws when there is none. */
export async function usableFamilies(iptables: Iptables): Promise<Family[]> {
  const asked = (['ip', 'ip6'] as const).map(async (family) => ({ family, usable: (await iptables.hasChain(family, 'nat', 'POSTROUTING')) !== false }));
  const answers = await Promise.allSettled(asked);
  const families = answers.flatMap((answer) => (answer.status === 'fulfilled' && answer.value.usable ? [answer.value.family] : []));
  const why: unknown = answers.findLast((answer) => answer.status === 'rejected')?.reason ?? null;
  if (families.length > 0) return families;
  throw new OpError('unsupported', 'start the proxy', 'iptables does not work on this host', {
    cause: why,
    advice: 'Install the iptables package, or use --proxy-mode=nftables.',
  });
}
