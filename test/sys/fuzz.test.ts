import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { test } from 'node:test';
import { type Rng, realRng, seededRng } from '../../base/rng.ts';
import { AnswerSplitter, FieldWriter, kinds, ops, protocolVersion } from '../../base/sys/wire.ts';
import { errnoNumber } from '../../base/sys/errno.ts';
import { buildProgram, sysProblem } from './program.ts';

const skip = sysProblem();
if (skip !== false) console.log(`sys fuzzing: skipped, ${skip}`);

const requests = Object.entries(ops).filter(([name]) => name !== 'hello' && name !== 'cancel');

function text(rng: Rng): string {
  return rng.pick(['', '/', 'a/b', '../..', `/tmp/${rng.suffix(8)}`, rng.suffix(rng.int(5000))]);
}

/** The fields of each request as the client writes them, with values by chance. */
function fieldsOf(name: string, rng: Rng): FieldWriter {
  const fields = new FieldWriter();
  const number = (): number => rng.pick([0, 1, 2, 0xffffffff, rng.int(2 ** 32)]);
  const list = (): string[] => Array.from({ length: rng.int(6) }, () => text(rng));
  switch (name) {
    case 'run':
      fields
        .strings(['true', ...list()])
        .strings(list())
        .string(text(rng))
        .string(text(rng))
        .string(text(rng));
      return fields
        .bytes(rng.bytes(rng.int(3000)))
        .u32(number())
        .string(text(rng));
    case 'mount':
      return fields.string(text(rng)).string(text(rng)).string(text(rng)).u64(number()).string(text(rng));
    case 'umount':
      return fields.string(text(rng)).u32(number());
    case 'bind':
      return fields.string(text(rng)).string(text(rng)).string(text(rng)).u32(number()).u64(number());
    case 'readBeneath':
    case 'mkdirBeneath':
      return fields.string(text(rng)).string(text(rng)).u32(number()).u8(rng.int(2));
    case 'fileOps': {
      const count = rng.int(5);
      fields.string(text(rng)).u8(rng.int(4)).u32(count);
      for (let n = 0; n < count; n++)
        fields
          .u8(rng.int(11))
          .string(text(rng))
          .string(text(rng))
          .u32(number())
          .u32(number())
          .u32(number())
          .bytes(rng.bytes(rng.int(100)));
      return fields;
    }
    case 'chownTree':
      return fields.string(text(rng)).u32(number()).u32(number()).u32(number()).u32(number());
    case 'removeTree':
    case 'diskUsage':
    case 'statfs':
    case 'lock':
    case 'lockWatched':
      return fields.string(text(rng));
    case 'netlink':
      return fields
        .u32(number())
        .string(text(rng))
        .bytes(rng.bytes(rng.int(500)))
        .u32(number())
        .u32(number());
    case 'readFiles':
      return fields.u32(number()).strings(list());
    case 'writeFiles': {
      const paths = list();
      fields.u32(paths.length);
      for (const path of paths) fields.string(path).bytes(rng.bytes(rng.int(50)));
      return fields;
    }
    case 'notify':
      return fields.string(text(rng)).string(text(rng));
    case 'holdDescriptor':
      return fields
        .string(text(rng))
        .bytes(rng.bytes(rng.int(300)))
        .u32(number());
    case 'kernelLog':
      return fields;
    default:
      throw new Error(`no fields known for ${name}`);
  }
}

function mutated(frame: Buffer, rng: Rng): Buffer {
  const copy = Buffer.from(frame);
  switch (rng.int(6)) {
    case 0: // a byte somewhere
      copy[rng.int(copy.length)] = rng.int(256);
      return copy;
    case 1: // several bytes of the fields, the frame still whole
      for (let n = 0; n < 8; n++) copy[Math.min(copy.length - 1, 13 + rng.int(copy.length))] = rng.int(256);
      return copy;
    case 2: {
      // cut, with its length put right
      const cut = copy.subarray(0, Math.max(13, rng.int(copy.length)));
      cut.writeUInt32LE(cut.length - 4, 0);
      return cut;
    }
    case 3: {
      // longer than its fields
      const longer = Buffer.concat([copy, rng.bytes(1 + rng.int(40))]);
      longer.writeUInt32LE(longer.length - 4, 0);
      return longer;
    }
    case 4: {
      // a length inside that says too much
      if (copy.length >= 17) copy.writeUInt32LE(rng.pick([0xffffffff, 0x7fffffff, copy.length, rng.int(2 ** 32)]), 13);
      return copy;
    }
    default: // an operation that does not fit the fields
      copy[12] = rng.int(40);
      return copy;
  }
}

interface Run {
  code: number | null;
  signal: NodeJS.Signals | null;
  stderr: string;
  errnos: Map<number, number>;
}

async function feed(path: string, chunks: readonly Uint8Array[]): Promise<Run> {
  const child = spawn(path, ['serve'], { stdio: 'pipe', env: {} });
  const errnos = new Map<number, number>();
  const splitter = new AnswerSplitter();
  let stderr = '';
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  child.stdin.on('error', () => {});
  let answered = 0;
  // What has no answer (half a frame) ends here; long enough for a child of one request under the sanitizers.
  const end = setTimeout(() => child.stdin.end(), 1000);
  child.stdout.on('data', (chunk: Buffer) => {
    end.refresh();
    for (const answer of splitter.push(chunk)) {
      answered++;
      if (answer.kind === kinds.fail) errnos.set(answer.id, answer.fields.u32());
    }
    if (answered >= chunks.length) child.stdin.end();
  });
  for (const chunk of chunks) child.stdin.write(chunk);
  const hung = setTimeout(() => child.kill('SIGABRT'), 20_000);
  const [code, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve) => child.on('close', (...how) => resolve(how)));
  clearTimeout(end);
  clearTimeout(hung);
  return { code, signal, stderr, errnos };
}

const hello = new FieldWriter().u32(protocolVersion).frame(0, ops.hello, 0);

function survived(run: Run, what: string): void {
  assert.equal(run.signal, null, `${what}: it must neither crash nor hang`);
  assert.equal(run.code, 0, `${what}: ${run.stderr}`);
  assert.equal(run.stderr, '', what);
  assert.ok(![...run.errnos.values()].includes(errnoNumber('EIO')), `${what}: a child died`);
}

test('no frame makes it crash or hang', { skip }, async (t) => {
  using program = buildProgram('--fuzz');
  const rounds = Number(process.env['NODELET_FUZZ_ROUNDS'] ?? 12);
  const given = process.env['NODELET_FUZZ_SEED'];

  await t.test('requests as the client writes them are all understood', async () => {
    const rng = seededRng(1);
    const frames = requests.flatMap(([name, op]) => Array.from({ length: 4 }, () => ({ name, op })));
    const run = await feed(program.path, [hello, ...frames.map(({ name, op }, index) => fieldsOf(name, rng).frame(index + 1, op, 5000))]);
    survived(run, 'valid frames');
    const codes = frames.map((frame, index) => [frame.name, run.errnos.get(index + 1)]);
    // A link rule of 3 does not exist, but is only a number to the parser.
    assert.deepEqual(
      codes,
      frames.map(({ name }) => [name, errnoNumber('ENOSYS')]),
    );
  });

  for (let round = 0; round < rounds; round++) {
    const seed = given === undefined ? realRng.int(2 ** 31) : Number(given);
    await t.test(`mutated frames, seed ${seed}`, async () => {
      const rng = seededRng(seed);
      const frames = Array.from({ length: 40 }, (_, index) => {
        const [name, op] = rng.pick(requests);
        return mutated(fieldsOf(name, rng).frame(index + 1, op, rng.int(10_000)), rng);
      });
      survived(await feed(program.path, [hello, ...frames]), `seed ${seed}`);
    });
  }

  await t.test('garbage, half a frame, a frame too large, and no greeting', async () => {
    const rng = seededRng(2);
    const tooLarge = Buffer.alloc(100, 0xff);
    const half = fieldsOf('run', rng).frame(1, ops.run, 1000).subarray(0, 20);
    for (const chunks of [
      [rng.bytes(5000)],
      [hello, rng.bytes(5000)],
      [hello, tooLarge],
      [hello, half],
      [new FieldWriter().frame(1, ops.statfs, 0)],
      [Buffer.alloc(0)],
    ]) {
      survived(await feed(program.path, chunks), 'garbage');
    }
  });

  await t.test('a frame that arrives byte by byte is a frame', async () => {
    const frame = Buffer.concat([hello, new FieldWriter().string('/x').frame(7, ops.statfs, 1000)]);
    const run = await feed(
      program.path,
      Array.from(frame, (byte) => Uint8Array.of(byte)),
    );
    survived(run, 'byte by byte');
    assert.equal(run.errnos.get(7), errnoNumber('ENOSYS'));
  });
});
