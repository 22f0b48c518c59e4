import { setImmediate as turn } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import { readList } from '../../base/netlink-read.ts';
import { ErrnoError, errnoName } from '../../base/sys/errno.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { Observed } from '../core/diff.ts';
import { countRules, decodeChains, decodeCounters, decodeElements, decodeGeneration, decodeSets } from '../core/decode-netlink.ts';
import { BatchEncoder, encodeDump, encodeGetGeneration } from '../core/encode-netlink.ts';
import type { Family } from '../core/ip.ts';
import { answersOf, type Answer } from '../core/netlink.ts';
import { endpointMap, endpointMapOf, SERVICE_SETS, sets } from '../core/nft-table.ts';
import type { Op } from '../core/ops.ts';
import { adviceFor, refusedWith } from './errno.ts';
import type { CommitResult, NftKernel } from './kernel.ts';
import { netfilterSocket } from './socket.ts';

const TIMEOUT_MS = 60_000;
/** More answers than can come: all that the kernel has to say are collected. */
const ALL_ANSWERS = 1_000_000;
const ENOENT = 2;
const OPS_AT_A_STRETCH = 2000;
/** What the kernel refuses for a moment is tried this often. */
const TRIES = 3;
/** With it a transaction only asks: it is refused for certain, and all there is to say is said at once. */
const REFUSED: Op = { op: 'delete-chain', chain: 'a chain that nobody has' };

/** Transactions and dumps as nfnetlink messages: no process is started and no listing is needed before a write. */
export function createNetlinkKernel(sys: Sys, options: { netns?: string } = {}): NftKernel {
  const send = netfilterSocket(sys, options, TIMEOUT_MS);
  /** Each of them moved the kernel's generation by one, or by nothing when it changed nothing. */
  let commits = 0;
  const ahead = new WeakMap<readonly Op[], Promise<Uint8Array>>();

  const dump = async (messages: Uint8Array): Promise<Uint8Array[] | 'absent'> => {
    const { datagrams, errno } = await readList(() => send(messages, 1), 'read nftables');
    if (errno === 0) return datagrams;
    if (errno === ENOENT) return 'absent';
    throw refusedWith(errno, 'read nftables');
  };

  return {
    async prepare(family: Family, ops: readonly Op[]): Promise<void> {
      const encoded = encode(family, ops, false);
      ahead.set(ops, encoded);
      await encoded;
    },

    async commit(family: Family, ops: readonly Op[], signal?: AbortSignal): Promise<CommitResult> {
      if (ops.length === 0) return { ok: true };
      if (signal?.aborted === true) return { ok: false, error: new OpError('aborted', 'write nftables rules', 'stopped by the caller'), failedOps: [] };
      try {
        for (let tries = 1; ; tries++) {
          const first = answersOf(await send(await (ahead.get(ops) ?? encode(family, ops, false)), 1));
          if (first.length === 1 && first[0]!.errno === 0) {
            commits += 1;
            return { ok: true };
          }
          if (first.every((answer) => answer.errno === 0)) return refusal(ops, first);
          // The first refusal is not all there is to know: the same again, with a message for each operation, tells every culprit.
          const question = refusal(ops, answersOf(await send(await encode(family, [...ops, REFUSED], true), ALL_ANSWERS)));
          if (question.failedOps.length > 0) return question;
          // Nothing is wrong with it any more: a chain, for one, is busy for a moment.
          if (tries === TRIES) return { ...refusal(ops, first), failedOps: [] };
        }
      } catch (error) {
        if (!(error instanceof OpError)) throw error;
        // Who asked is dead: nobody knows whether the kernel has it.
        const isOpen = error instanceof ErrnoError && error.errno === 'EIO';
        return { ok: false, error: isOpen ? new OpError('unavailable', 'write nftables rules', error.message, { cause: error }) : error, failedOps: [] };
      }
    },

    async observe(family: Family): Promise<Observed | 'absent'> {
      const [chains, all] = await Promise.all([dump(encodeDump(family, 'chains')), dump(encodeDump(family, 'sets'))]);
      if (chains === 'absent' || all === 'absent') return 'absent';
      const names = decodeChains(chains);
      const { names: setNames, affinity } = decodeSets(all);
      if (names.length === 0 && setNames.size === 0) return 'absent';
      const elements = new Map<string, ReadonlyMap<string, string>>();
      const maps = [...setNames].flatMap((name) => {
        const map = endpointMapOf(name);
        return map === null ? [] : [endpointMap(map.protocol, map.number)];
      });
      for (const set of [...SERVICE_SETS, sets.nodePortIPs, ...maps]) {
        const found = setNames.has(set.name) ? await dump(encodeDump(family, { elementsOf: set.name })) : 'absent';
        elements.set(set.name, found === 'absent' ? new Map() : decodeElements(found, set, family));
      }
      return { chains: names, affinitySets: affinity, elements };
    },

    async ruleCounts(family: Family): Promise<ReadonlyMap<string, number>> {
      const rules = await dump(encodeDump(family, 'rules'));
      return rules === 'absent' ? new Map() : countRules(rules);
    },

    async generation(): Promise<number | null> {
      const generation = decodeGeneration(await send(encodeGetGeneration(), 1));
      return generation === null ? null : generation - commits;
    },
  };
}

/** Packets that the table's named counters have seen, by name; none where there is no table. */
export async function readCounterPackets(sys: Sys, family: Family, options: { netns?: string } = {}): Promise<Map<string, number>> {
  return decodeCounters(await netfilterSocket(sys, options, TIMEOUT_MS)(encodeDump(family, 'counters'), 1));
}

/** Encodes with pauses in which the event loop gets its turn. */
async function encode(family: Family, ops: readonly Op[], apart: boolean): Promise<Uint8Array> {
  const batch = new BatchEncoder(family, { apart });
  for (let from = 0; from < ops.length; from += OPS_AT_A_STRETCH) {
    if (from > 0) await turn();
    ops.slice(from, from + OPS_AT_A_STRETCH).forEach((op) => batch.add(op));
  }
  return batch.finish();
}

function refusal(ops: readonly Op[], answers: readonly Answer[]): CommitResult & { ok: false } {
  const refused = answers.filter((answer) => answer.errno !== 0);
  const first = refused[0];
  const failedOps = [...new Set(refused.map((answer) => answer.seq - 1).filter((index) => index >= 0 && index < ops.length))];
  const about = failedOps[0] === undefined ? 'the transaction' : ops[failedOps[0]]!.op;
  const detail =
    first === undefined ? 'the kernel did not answer' : `${about} refused with ${errnoName(first.errno)}${first.detail === '' ? '' : ` (${first.detail})`}`;
  return { ok: false, error: new OpError(first === undefined ? 'deadline' : 'failed', 'write nftables rules', detail, adviceFor(first?.errno)), failedOps };
}
