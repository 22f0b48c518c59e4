import { fakeId, fakeRecording, fakeUid, type FakePod, type FakeRecordingOptions } from '../../cri/core/fake-recording.ts';
import { RecordingWriter } from '../../cri/io/recording-write.ts';

/** Pods of deployments of ten, with generated names that are others for another seed. */
export function manyPods(count: number, seed: number): FakePod[] {
  return Array.from({ length: count }, (_, at) => {
    const hash = fakeId(`hash ${at % Math.ceil(count / 10)}`, 10).replaceAll(/[013ae]/g, 'x');
    const suffix = fakeId(`suffix ${seed} ${at}`, 5).replaceAll(/[013ae]/g, 'z');
    const owner = `app-${at % Math.ceil(count / 10)}`;
    return {
      namespace: 'load',
      name: `${owner}-${hash}-${suffix}`,
      uid: fakeUid(`${seed} ${at}`),
      labels: { app: owner, 'pod-template-hash': hash },
      containers: at % 5 === 0 ? ['main', 'beside'] : ['main'],
    };
  });
}

/** Writes a recording of 1,000 pods (or as many as asked for) that were started at ten a second, looked at each second. */
export function writeManyPods(path: string, seed: number, count = 1_000, change?: FakeRecordingOptions['change']): { calls: number; fileBytes: number } {
  const writer = new RecordingWriter(path, { maxBytes: 1024 ** 3, append: false });
  let calls = 0;
  try {
    for (const entry of fakeRecording({ pods: manyPods(count, seed), seed, everyMs: 100, relistMs: 1_000, ...(change === undefined ? {} : { change }) })) {
      if (entry.type === 'call') calls += 1;
      writer.add(entry);
    }
  } finally {
    writer[Symbol.dispose]();
  }
  return { calls, fileBytes: writer.sizeBytes };
}
