import { flushCompileCache } from 'node:module';
import { isMainThread } from 'node:worker_threads';
import type { Host } from '../base/host.ts';
import { failure, hostOf } from '../base/process.ts';
import { COMPILED_MS } from './core/compiled.ts';

/** Programs that run as daemons: loaded only when they are the command, so that each carries only what it needs. */
const DAEMONS: Readonly<Record<string, () => Promise<{ main(host: Host): Promise<number> }>>> = {
  agent: () => import('../agent/main.ts'),
  netfilter: () => import('./net.ts'),
  cni: () => import('../cni/main.ts'),
  control: () => import('../control/main.ts'),
  egress: () => import('./egress.ts'),
  dns: () => import('./dns.ts'),
};

async function run(): Promise<number> {
  const [command = '', ...rest] = process.argv.slice(2);
  const daemon = Object.hasOwn(DAEMONS, command) ? DAEMONS[command] : undefined;
  if (daemon !== undefined) {
    const host = hostOf(rest);
    setTimeout(flushCompileCache, COMPILED_MS).unref();
    try {
      return await (await daemon()).main(host);
    } catch (error) {
      return failure(host, error);
    }
  }
  // The cache is this program's; what it starts (kubectl, tests) has its own ways.
  delete process.env['NODE_COMPILE_CACHE'];
  const host = hostOf(process.argv.slice(2));
  try {
    return await (await import('./commands/table.ts')).runCommand(host);
  } catch (error) {
    return failure(host, error);
  }
}

// The only threads that anything here starts are the tap's.
if (isMainThread) process.exitCode = await run();
else await (await import('../cri/main.ts')).thread();
