import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { main } from '../../control/main.ts';

export interface Running extends AsyncDisposable {
  readonly kubeconfig: string;
  readonly server: string;
  readonly directory: string;
  kubectl(args: readonly string[], input?: string): Promise<{ code: number; out: string; err: string }>;
}

export async function freePort(): Promise<number> {
  const probe = createServer();
  const { promise, resolve } = Promise.withResolvers<void>();
  probe.listen(0, '127.0.0.1', resolve);
  await promise;
  const { port } = probe.address() as { port: number };
  const closed = Promise.withResolvers<void>();
  probe.close(() => closed.resolve());
  await closed.promise;
  return port;
}

/** The control plane as its command runs it, in this process, on a port and in directories of its own. */
export async function startForTest(flags: readonly string[] = []): Promise<Running> {
  const directory = mkdtempSync(join(tmpdir(), 'control-'));
  const port = await freePort();
  const stop = new AbortController();
  const up = Promise.withResolvers<void>();
  let log = '';
  const args = [
    '--data-dir',
    join(directory, 'data'),
    '--pki-dir',
    join(directory, 'pki'),
    '--bind-address',
    '127.0.0.1',
    '--advertise-address',
    '127.0.0.1',
    '--secure-port',
    String(port),
    ...flags,
  ];
  const stderr = (text: string): void => {
    log += text;
    if (text.includes('"serving"')) up.resolve();
  };
  const ended = main({ args, env: {}, pid: process.pid, stdout: () => {}, stderr, signal: stop.signal, isTerminal: false });
  void ended.then((code) => up.reject(new Error(`control ended with ${code}: ${log}`)));
  await up.promise;
  const kubeconfig = join(directory, 'pki', 'admin.kubeconfig');
  return {
    kubeconfig,
    server: `https://127.0.0.1:${port}`,
    directory,
    async kubectl(words, input) {
      const result = await execa('kubectl', ['--kubeconfig', kubeconfig, '--cache-dir', join(directory, 'cache'), ...words], {
        reject: false,
        timeout: 30_000,
        ...(input === undefined ? { stdin: 'ignore' as const } : { input }),
      });
      return { code: result.exitCode ?? -1, out: result.stdout, err: result.stderr };
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      await ended;
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
