import type { Choice, Fate, Packet } from './trace.ts';

/** A packet on its way through the hooks, whatever kind of table has the rules there. */

/** A rule that decided something about the packet. */
export interface Hop {
  table: string;
  chain: string;
  rule: string;
}

export interface Walk {
  packet: Packet;
  dst: string;
  port: number;
  /** Carries the mark that asks for masquerading. */
  marked: boolean;
  dnated: boolean;
  masqueraded: boolean;
  path: readonly Hop[];
}

/** What came of one chain; several walks come out where chance decides. */
export interface Outcome {
  kind: 'continue' | 'accept' | 'reject' | 'drop';
  walk: Walk;
}

export type Hook = 'prerouting' | 'input' | 'forward' | 'output' | 'postrouting';

/** Where a packet may end up, and by which rules: one entry for each way that chance may take. */
export interface Traced {
  fate: Fate;
  ways: readonly { choice: Choice | null; path: readonly Hop[] }[];
}

function isLocal(walk: Walk): boolean {
  return walk.packet.nodeAddresses.includes(walk.dst);
}

/** The hooks one after the other; which come last depends on where the packet goes by then. */
function* hooksOf(walk: () => Walk): Generator<Hook> {
  if (walk().packet.fromNode) {
    yield 'output';
    yield 'postrouting';
    if (isLocal(walk())) yield 'input';
    return;
  }
  yield 'prerouting';
  if (isLocal(walk())) yield 'input';
  else {
    yield 'forward';
    yield 'postrouting';
  }
}

function follow(start: Walk, runHook: (hook: Hook, walk: Walk) => readonly Outcome[]): Outcome[] {
  const go = (walk: Walk, done: number): Outcome[] => {
    let now = walk;
    let count = 0;
    for (const hook of hooksOf(() => now)) {
      if (count++ < done) continue;
      const outcomes = runHook(hook, now);
      if (outcomes.length === 1 && outcomes[0]!.kind !== 'drop' && outcomes[0]!.kind !== 'reject') now = outcomes[0]!.walk;
      else return outcomes.flatMap((outcome) => (outcome.kind === 'drop' || outcome.kind === 'reject' ? [outcome] : go(outcome.walk, count)));
    }
    return [{ kind: 'accept', walk: now }];
  };
  return go(start, 0);
}

/** @param runHook what all rules of a hook make of a packet */
export function tracePacket(packet: Packet, runHook: (hook: Hook, walk: Walk) => readonly Outcome[]): Traced {
  const start: Walk = { packet, dst: packet.dst, port: packet.port, marked: false, dnated: false, masqueraded: false, path: [] };
  const outcomes = follow(start, runHook);
  const refused = outcomes.find(({ kind }) => kind === 'drop' || kind === 'reject');
  if (refused !== undefined) return { fate: { kind: refused.kind as 'drop' | 'reject' }, ways: [{ choice: null, path: refused.walk.path }] };
  if (outcomes.every(({ walk }) => !walk.dnated))
    return { fate: { kind: 'pass' }, ways: outcomes.slice(0, 1).map(({ walk }) => ({ choice: null, path: walk.path })) };
  const choices = new Map<string, { choice: Choice; path: readonly Hop[] }>();
  for (const { walk } of outcomes) {
    const choice = { target: { address: walk.dst, port: walk.port }, masquerade: walk.masqueraded };
    if (!choices.has(`${walk.dst} ${walk.port}`)) choices.set(`${walk.dst} ${walk.port}`, { choice, path: walk.path });
  }
  const ways = [...choices.values()];
  return { fate: { kind: 'to', choices: ways.map(({ choice }) => choice) }, ways };
}
