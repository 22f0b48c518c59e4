import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { after, before, describe, test } from 'node:test';
import type { Event } from '../../proto/kube/types.ts';
import { findAssets } from '../assets/find.ts';
import { eventually } from '../set.ts';
import { box, Cases, NAMESPACE, shell, skip } from './world.ts';

/*
 * KB-34 on a disk of the runtime's own, 200 MiB of memory. A containerd that pins the sandbox image is taken where
 * there is one: older ones leave it to the kubelet, and upstream's takes it away there.
 */
let at: Cases;
let scratch = '';
const built = skip === false ? (await findAssets({ env: process.env })).path('containerd-2.4/containerd') : null;
before(
  async () => {
    if (skip !== false) return;
    at = await Cases.open('kc-images', built === null ? [] : ['--containerd', built]);
    scratch = await mkdtemp(`${tmpdir()}/nodelet-cases-`);
  },
  { timeout: 180_000 },
);
after(async () => {
  await at?.[Symbol.asyncDispose]();
  if (scratch !== '') await rm(scratch, { recursive: true, force: true });
});

const disk = '/var/lib/containerd';
const once = { terminationGracePeriodSeconds: 1, restartPolicy: 'Never' };
const made = async (image: string, ...more: string[]): Promise<void> => {
  const answer = await at.set.nodelet(['image', 'make', image, '--from', 'busybox', ...more]);
  assert.equal(answer.code, 0, answer.err);
};
/** An image that holds so many bytes, in a layer that does not shrink; unpacked it needs them a second time. */
async function large(image: string, bytes: number): Promise<void> {
  const file = `${scratch}/${image.replace(':', '-')}`;
  await writeFile(file, randomBytes(bytes));
  await made(image, '--file', `${file}:/payload`);
}
const images = async (): Promise<string[]> => (await at.cri.images.listImages({})).images.flatMap(({ repoTags }) => repoTags).toSorted();
const has = async (image: string): Promise<boolean> => (await images()).some((name) => name.endsWith(`/${image}`));

/** Runs an image to its end; the pod stays, or goes with its container. */
async function ran(name: string, image: string, stays: boolean): Promise<void> {
  await at.create(name, { ...once, containers: [{ ...box('m', shell('exit 0')), image }] });
  await at.watch.pod(name, 'has ended', 90_000, (pod) => pod.status?.phase === 'Succeeded');
  if (stays) return;
  await at.remove(name);
  await at.watch.gone(name, 60_000);
  await eventually(`nothing is left of ${name}`, 60_000, async () => {
    for (const { id } of await at.containers(name)) await at.cri.runtime.removeContainer({ containerId: id });
    return (await at.containers(name)).length === 0 ? true : null;
  });
}

/** Fills the runtime's disk to so many per cent. */
async function fill(percent: number): Promise<void> {
  await at.inNode('rm', '-f', `${disk}/filler`);
  const [total = 0, used = 0] = (await at.inNode('sh', '-c', `df -k ${disk} | tail -1`)).split(/\s+/).slice(1, 3).map(Number);
  const count = Math.ceil((total * percent) / 100) - used;
  assert.ok(count > 0, `${used} KiB of ${total} are used already`);
  await at.inNode('dd', 'if=/dev/zero', `of=${disk}/filler`, 'bs=1k', `count=${count}`);
}

const freed = async (): Promise<Event[]> =>
  (JSON.parse(await at.set.k(['get', 'events', '-A', '-o', 'json'])) as { items: Event[] }).items.filter(({ reason }) => reason === 'FreeDiskSpaceFailed');

describe('images and the disk', { skip, timeout: 900_000 }, () => {
  test('KB-34: the image unused for longest goes, used and pinned ones stay, and no more goes than must', async () => {
    await at.configure({ imageGCHighThresholdPercent: 85, imageGCLowThresholdPercent: 80, imageMinimumGCAge: '0s' }, async () => {
      await at.init('stop containerd');
      const copy = `${at.folder}/containerd-copy`;
      await at.inNode('sh', '-c', `cp -a ${disk} ${copy} && mount -t tmpfs -o size=200m tmpfs ${disk} && cp -a ${copy}/. ${disk}/ && rm -rf ${copy}`);
      await at.init('start containerd');
    });
    await made('used:1', '--env', 'N=1');
    await made('usedold:1', '--env', 'N=2');
    await large('free1:1', 34 << 20);
    await large('free2:1', 34 << 20);
    await at.create('used', { ...once, containers: [{ ...box('m', ['sleep', '3600']), image: 'used:1' }] });
    await at.ready('used', 120_000);
    await ran('usedold', 'usedold:1', true);
    await ran('free1', 'free1:1', false);
    // The first look of this kubelet sees one of them, the next one both.
    await at.configure({});
    const startedMs = performance.now();
    await eventually('it has looked once', 30_000, async () => (performance.now() - startedMs > 15_000 ? true : null));
    await ran('free2', 'free2:1', false);
    await fill(95);
    console.log(`kb34: filled ${Math.round((performance.now() - startedMs) / 1000)} s after the start: ${(await images()).join(' ')}`);
    await eventually('free1 is gone', 420_000, async () => ((await has('free1:1')) ? null : true));
    console.log(`kb34: free1 went ${Math.round((performance.now() - startedMs) / 1000)} s after the start`);
    const left = await images();
    for (const image of ['used:1', 'usedold:1', 'free2:1'])
      assert.ok(
        left.some((name) => name.endsWith(`/${image}`)),
        `${image} is not among ${left.join(' ')}`,
      );
    if (built !== null)
      assert.ok(
        left.some((name) => name.includes('/pause:')),
        left.join(' '),
      );
  });

  test('KB-34: when nothing may be freed it is told, and nothing goes', async () => {
    const gone = (await at.cri.images.listImages({})).images.find(({ repoTags }) => repoTags.some((name) => name.endsWith('/free2:1')));
    await at.cri.images.removeImage({ image: { image: gone?.id ?? '' } });
    await at.inNode('sh', '-c', `until [ $(df -k ${disk} | tail -1 | awk '{ print $3 }') -lt 130000 ]; do rm -f ${disk}/filler; sleep 1; done`);
    // Everything else that nothing uses goes before, so that this look finds nothing.
    await at.configure({}, async () => fill(95));
    const startedMs = performance.now();
    const [event] = await eventually('it is told', 420_000, async () => {
      const events = await freed();
      return events.length > 0 ? events : null;
    });
    console.log(`kb34: ${Math.round((performance.now() - startedMs) / 1000)} s after the start: ${event?.message}`);
    assert.deepEqual([event?.type, event?.involvedObject.kind], ['Warning', 'Node']);
    assert.match(
      event?.message ?? '',
      /^Insufficient free disk space on the node's image filesystem \(\d+% of [\d.]+ MiB used\)\. Failed to free sufficient space by deleting unused images \(freed \d+ bytes\)\./,
    );
    for (const image of ['used:1', 'usedold:1']) assert.ok(await has(image), image);
    if (built !== null)
      assert.ok(
        (await images()).some((name) => name.includes('/pause:')),
        'the sandbox image',
      );
    await at.k('delete', 'pods', '-n', NAMESPACE, '--all', '--force', '--grace-period=0', '--wait=false');
  });
});
