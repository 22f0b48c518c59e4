import { failure, hostOf } from '../base/process.ts';
import { COMPILED_MS } from './core/compiled.ts';
import { beFrugal, keepCompiled } from './frugal.ts';
import { main } from './net.ts';

/**
 * The service proxy as a program of its own, `dist/netfilter.cjs`: what one runs on each node for as long as the node
 * lives carries nothing of the other commands. It is one CommonJS file, so that what is loaded lazily (trace and diff, the
 * pod network's daemon, system calls without the C program) loads no module of Node either before it is asked for.
 */
async function run(): Promise<number> {
  // As in main.ts the command comes first.
  const host = hostOf(process.argv.slice(3));
  using _frugal = beFrugal();
  setTimeout(keepCompiled, COMPILED_MS).unref();
  try {
    return await main(host);
  } catch (error) {
    return failure(host, error);
  }
}

void run().then((code) => (process.exitCode = code));
