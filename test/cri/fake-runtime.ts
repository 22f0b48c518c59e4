/** A runtime in memory behind gRPC at the socket that the first argument names, until it is killed; `pulls` after it: with every image there is. */
import { realClock } from '../../base/clock.ts';
import { serveFake } from '../../cri/fake-serve.ts';
import { FakeRuntime } from '../../cri/fake.ts';

const runtime = new FakeRuntime({ clock: realClock });
runtime.images.pullsAnything = process.argv[3] === 'pulls';
await serveFake(runtime, process.argv[2] ?? '');
process.stdout.write('answers\n');
