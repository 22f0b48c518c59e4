/** A runtime in memory behind gRPC at the socket that the first argument names, until it is killed. */
import { realClock } from '../../base/clock.ts';
import { serveFake } from '../../cri/fake-serve.ts';
import { FakeRuntime } from '../../cri/fake.ts';

await serveFake(new FakeRuntime({ clock: realClock }), process.argv[2] ?? '');
process.stdout.write('answers\n');
