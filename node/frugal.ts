import { flushCompileCache } from 'node:module';
import { setFlagsFromString } from 'node:v8';

/**
 * How V8 runs the service proxy: its heap grows in small steps (5 MiB less at 1,000 Services), and code is compiled as it
 * is written, not optimized, but for the one function in which half of a start's time went, that of SHA-256. Optimizing
 * the rest takes 10 MiB and wins a third of the proxy's own processor time at 10,000 Services, where most of the time is
 * the kernel's. The young generation is so small that more threads than one take longer to meet than to copy it.
 *
 * As arguments of Node these would cost a start 25 ms and 1 MiB: code that is kept, Node's own and ours, is only taken
 * under the flags it was made with. So they are set once everything is loaded, and taken back while code is put away.
 */
const FLAGS = {
  frugal: ['--optimize-for-size', '--no-turbofan', '--maglev-filter=compress', '--no-parallel-scavenge'],
  usual: ['--no-optimize-for-size', '--turbofan', '--maglev-filter=*', '--parallel-scavenge'],
};

function set(flags: readonly string[]): void {
  for (const flag of flags) setFlagsFromString(flag);
}

/** From now on little memory counts more than speed, until disposed. */
export function beFrugal(): Disposable {
  set(FLAGS.frugal);
  return { [Symbol.dispose]: () => set(FLAGS.usual) };
}

/** Puts the code away that was compiled so far, for the next start. */
export function keepCompiled(): void {
  set(FLAGS.usual);
  flushCompileCache();
  set(FLAGS.frugal);
}
