/**
 * A caller that looks like a kubelet to whoever searches: its name, its flags. It asks for the version every 100 ms by one
 * connection, as long as that lives, and writes a line for each answer and each failure.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { connectRuntime } from '../../cri/grpc.ts';
import { createCriClient } from '../../cri/mod.ts';

const endpoint = process.argv.find((word) => word.startsWith('--container-runtime-endpoint='))?.split('=')[1] ?? '';
const client = createCriClient(connectRuntime(endpoint.replace(/^unix:\/\//, '')));
for (;;) {
  try {
    await client.runtime.version({}, { timeoutMs: 2_000 });
    process.stdout.write('answer\n');
  } catch {
    process.stdout.write('failure\n');
  }
  await delay(100);
}
