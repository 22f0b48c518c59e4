import type { Host } from '../base/host.ts';
import { main as proxy } from '../netfilter/main.ts';

/** `--cni-config FILE`, taken out of the service proxy's arguments. */
export function splitCniConfig(args: readonly string[]): { config: string | null; rest: string[] } {
  const rest: string[] = [];
  let config: string | null = null;
  for (let at = 0; at < args.length; at++) {
    const argument = args[at]!;
    if (argument === '--cni-config') config = args[++at] ?? '';
    else if (argument.startsWith('--cni-config=')) config = argument.slice('--cni-config='.length);
    else rest.push(argument);
  }
  return { config, rest };
}

/** `nodelet netfilter`: the service proxy, and in the same process the pod network's daemon where one is configured. Neither knows the other; when one ends, both do. */
export async function main(host: Host): Promise<number> {
  const { config, rest } = splitCniConfig(host.args);
  if (config === null) return await proxy(host);
  const either = new AbortController();
  const both = { ...host, signal: AbortSignal.any([host.signal, either.signal]) };
  const { main: cni } = await import('../cni/main.ts');
  const codes = await Promise.all(
    [cni({ ...both, args: ['daemon', '--config', config] }), proxy({ ...both, args: rest })].map(async (one) => await one.finally(() => either.abort())),
  );
  return codes.find((code) => code !== 0) ?? 0;
}
