import { realClock } from '../../base/clock.ts';
import { createCriClient } from '../../cri/client.ts';
import { serveFake } from '../../cri/fake-serve.ts';
import { FakeRuntime } from '../../cri/fake.ts';

/** The fake runtime as a process of its own, with as many containers as a full node has: its socket is the one argument. */
const CONTAINERS = 110;
/** As large as a kubelet's: about 900 bytes a container. */
const ANNOTATION = 'x'.repeat(450);

const runtime = new FakeRuntime({ clock: realClock });
runtime.images.add({ name: 'busybox', present: true });
const own = createCriClient(runtime);
for (let made = 0; made < CONTAINERS; made++) {
  const metadata = { name: `pod-${made}`, namespace: 'default', uid: `${made}`, attempt: 0 };
  const { podSandboxId } = await own.runtime.runPodSandbox({ config: { metadata } });
  const labels = { 'io.kubernetes.pod.name': metadata.name, 'io.kubernetes.pod.namespace': 'default', 'io.kubernetes.container.name': 'main' };
  await own.runtime.createContainer({
    podSandboxId,
    config: { metadata: { name: 'main' }, image: { image: 'busybox' }, labels, annotations: { spec: ANNOTATION } },
  });
}
const server = await serveFake(runtime, process.argv[2] ?? '');
process.stdout.write('serving\n');
process.once('SIGTERM', () => server.forceShutdown());
