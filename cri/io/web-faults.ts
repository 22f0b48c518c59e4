import type { WebFault } from '../core/web-wire.ts';
import { askTap } from './feed.ts';
import type { FaultState } from './tap-faults.ts';
import type { FaultDoor } from './web-serve.ts';

/** The rules that a tap has armed, over its control socket. Rules that stay go on counting. */
export function faultsOfTap(control: string, signal: AbortSignal): FaultDoor {
  const ask = async (request: { readonly do: string; readonly rules?: readonly string[]; readonly add?: true; readonly keep?: true }): Promise<WebFault[]> => {
    const { rules } = (await askTap(control, request, signal)) as FaultState;
    return rules.map(({ text, matched, fired }, at) => ({ number: at + 1, text, matched, fired }));
  };
  const list = (): Promise<WebFault[]> => ask({ do: 'faults' });
  return {
    list,
    arm: (text) => ask({ do: 'fault', rules: [text], add: true }),
    disarm: async (number) => ask({ do: 'fault', rules: (await list()).filter((fault) => fault.number !== number).map(({ text }) => text), keep: true }),
  };
}
