import type { RuleState } from '../core/fault-rules.ts';
import { printRule } from '../core/fault-text.ts';
import type { WebFault } from '../core/web-wire.ts';
import { askTap } from './feed.ts';
import type { FaultDoor } from './web-serve.ts';

function asFaults(answer: object): WebFault[] {
  const { rules = [] } = answer as { rules?: readonly RuleState[] };
  return rules.map(({ rule, matched, fired }, at) => ({ number: at + 1, text: printRule(rule), matched, fired }));
}

/** The rules that a tap has armed, over its control socket. */
export function faultsOfTap(control: string, signal: AbortSignal): FaultDoor {
  const list = async (): Promise<WebFault[]> => asFaults(await askTap(control, { do: 'faults' }, signal));
  const set = async (rules: readonly string[]): Promise<WebFault[]> => asFaults(await askTap(control, { do: 'fault', rules }, signal));
  return {
    list,
    arm: async (text) => set([...(await list()).map((fault) => fault.text), text]),
    disarm: async (number) => set((await list()).filter((fault) => fault.number !== number).map((fault) => fault.text)),
  };
}
