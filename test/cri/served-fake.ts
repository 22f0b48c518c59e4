import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { realClock } from '../../base/clock.ts';
import { serveFake } from '../../cri/fake-serve.ts';
import { FakeRuntime } from '../../cri/fake.ts';

export interface ServedFake extends AsyncDisposable {
  readonly fake: FakeRuntime;
  /** Its own, gone afterwards. */
  readonly folder: string;
  /** Where the fake answers. */
  readonly socket: string;
}

/** A fake runtime with one image behind gRPC, in a folder of its own. */
export async function servedFake(): Promise<ServedFake> {
  const folder = await mkdtemp(join(tmpdir(), 'cri-'));
  const fake = new FakeRuntime({ clock: realClock });
  fake.images.add({ name: 'busybox', present: true });
  const socket = join(folder, 'runtime.sock');
  const server = await serveFake(fake, socket);
  return {
    fake,
    folder,
    socket,
    [Symbol.asyncDispose]: async () => {
      await server[Symbol.asyncDispose]();
      await fake[Symbol.asyncDispose]();
      await rm(folder, { recursive: true });
    },
  };
}
