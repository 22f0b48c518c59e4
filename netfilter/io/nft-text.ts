import { OpError } from '../../base/errors.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { Family } from '../core/ip.ts';
import type { Op } from '../core/ops.ts';
import { opText } from '../core/render-nft-text.ts';
import type { CommitResult, NftKernel } from './kernel.ts';

/** A transaction of 10,000 Services takes nft about 12 s. */
const NFT_TIMEOUT_MS = 120_000;

/**
 * Which lines nft complains about. The tool has no other way to say which command was refused; a text that does
 * not match only costs the knowledge of the culprit.
 */
export function failedLines(stderr: string): number[] {
  return [...stderr.matchAll(/^(?:\/dev\/stdin|-|<stdin>):(\d+):\d+(?:-\d+)?: /gm)].map((match) => Number(match[1]) - 1);
}

/** Transactions through `nft -f -`: the fallback, and the form a person can replay. */
export function createTextKernel(sys: Sys, options: { netns?: string } = {}): NftKernel {
  return {
    async commit(family: Family, ops: readonly Op[], signal?: AbortSignal): Promise<CommitResult> {
      if (ops.length === 0) return { ok: true };
      const stdin = ops.map((op) => `${opText(op, family)}\n`).join('');
      const result = await sys.run(
        { argv: ['nft', '-f', '-'], stdin, timeoutMs: NFT_TIMEOUT_MS, ...(options.netns === undefined ? {} : { netns: options.netns }) },
        signal,
      );
      if (result.code === 0) return { ok: true };
      const stderr = Buffer.from(result.stderr).toString('utf8');
      const detail = result.timedOut ? `no answer within ${NFT_TIMEOUT_MS} ms` : stderr.trim().split('\n').slice(0, 3).join(' ');
      const failedOps = failedLines(stderr).filter((line) => line < ops.length);
      return { ok: false, error: new OpError(result.timedOut ? 'deadline' : 'failed', 'write nftables rules', detail), failedOps };
    },
    observe: async () => 'unknown',
    ruleCounts: async () => null,
    generation: async () => null,
  };
}

/** The version of the `nft` program, or null when there is none. */
export async function nftVersion(sys: Sys): Promise<readonly number[] | null> {
  try {
    const result = await sys.run({ argv: ['nft', '--version'], timeoutMs: 5000 });
    const match = /v(\d+)\.(\d+)\.(\d+)/.exec(Buffer.from(result.stdout).toString('utf8'));
    return match === null ? null : match.slice(1).map(Number);
  } catch {
    return null;
  }
}
