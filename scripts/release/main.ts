import { createHash } from 'node:crypto';
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { arch } from 'node:os';
import { dirname, resolve } from 'node:path';
import { promisify } from 'node:util';
import { constants, gzip } from 'node:zlib';
import { pack } from 'tar-stream';
import { buffer } from 'node:stream/consumers';
import { version } from '../../base/version.ts';
import { buildSys, sysIsStale } from '../../node/mod.ts';
import { requireWritable, runProgram, type Program } from '../command.ts';
import { partsOf, type Part } from './parts.ts';

interface Options {
  readonly output: string | undefined;
  readonly json: boolean;
}

const root = new URL('../..', import.meta.url).pathname.replace(/\/$/, '');

await runProgram('release', 'Makes one file that holds all of nodelet, Node included, and runs where nothing is installed.', (program) => {
  program
    .add<Options>('make', 'make that file', ['nodelet release make', 'nodelet release make -o /tmp/nodelet --json'], (options) => make(program, options), {
      isDefault: true,
    })
    .option('-o, --output <file>', `the file; left out: dist/nodelet-linux-${arch()}`);
});

/** Reproducible: the same sources, Node and compiler give the same bytes. */
async function make(program: Program, options: Options): Promise<number> {
  await requireWritable('--output', options.output);
  const output = resolve(options.output ?? `${root}/dist/nodelet-linux-${arch()}`);
  await mkdir(dirname(output), { recursive: true });
  if (await sysIsStale(root)) await program.progress.step('sys built', () => buildSys(root));
  const parts = await partsOf(root);
  const payload = await program.progress.step('packed', () => packed(parts));
  const sum = createHash('sha256').update(payload).digest('hex');
  const start = header(await readFile(`${root}/scripts/release/start.sh`, 'utf8'), sum);
  await program.progress.step(`${output} written`, () => written(output, [start, payload]));
  const sha256 = createHash('sha256').update(start).update(payload).digest('hex');
  const sizeBytes = start.length + payload.length;
  program.answer(options.json, { file: output, version, arch: arch(), sizeBytes, sha256, payloadSha256: sum }, [
    `${output}: nodelet ${version} for linux-${arch()}, ${(sizeBytes / 1e6).toFixed(1)} MB`,
    `sha256 ${sha256}`,
    'run it as it is, or under the names kubelet and kube-proxy',
  ]);
  return 0;
}

/** No time, owner or order of this machine gets into it. */
async function packed(parts: readonly Part[]): Promise<Buffer> {
  const archive = pack();
  const all = buffer(archive);
  for (const part of parts) archive.entry({ name: part.name, mode: part.mode, mtime: new Date(0), uid: 0, gid: 0 }, await readFile(part.from));
  archive.finalize();
  return promisify(gzip)(await all, { level: constants.Z_BEST_COMPRESSION });
}

/** The text in front of the payload; it names the byte at which the payload begins, so its own length is settled first. */
function header(template: string, sum: string): Buffer {
  const filled = template.replaceAll('@VERSION@', version).replaceAll('@ARCH@', arch()).replaceAll('@SUM@', sum);
  const digits = 6;
  const length = Buffer.byteLength(filled) - '@OFFSET@'.length + digits;
  return Buffer.from(filled.replace('@OFFSET@', String(length + 1).padStart(digits, '0')));
}

/** Whole or not at all, and with room for nothing of an older one. */
async function written(path: string, chunks: readonly Buffer[]): Promise<void> {
  const next = `${path}.new${process.pid}`;
  try {
    await using file = await open(next, 'w', 0o755);
    for (const chunk of chunks) await file.writeFile(chunk);
    await file.sync();
    await rename(next, path);
  } catch (error) {
    await rm(next, { force: true });
    throw error;
  }
}
