import { readdir, stat } from 'node:fs/promises';
import { execa } from 'execa';
import { OpError } from '../../base/errors.ts';

async function mtimeMs(path: string): Promise<number> {
  return stat(path).then(
    (info) => info.mtimeMs,
    () => 0,
  );
}

/** What is built, with the folder of its sources. */
const BUILT = [
  { out: 'dist/sys', sources: 'sys', options: [] },
  { out: 'dist/cni/nodelet', sources: 'sys/front', options: ['--front'] },
] as const;

async function isStale(root: string, { out, sources }: (typeof BUILT)[number]): Promise<boolean> {
  const built = await mtimeMs(`${root}/${out}`);
  const names = await readdir(`${root}/${sources}`).catch(() => [] as string[]);
  if (names.length === 0) return built === 0;
  for (const name of names) if (/\.[ch]$|\.sh$/.test(name) && (await mtimeMs(`${root}/${sources}/${name}`)) > built) return true;
  return false;
}

/** Whether a C program has to be built: it is not there, or a source is newer. A release without sources never builds. */
export async function sysIsStale(root: string): Promise<boolean> {
  for (const one of BUILT) if (await isStale(root, one)) return true;
  return false;
}

export async function buildSys(root: string): Promise<void> {
  for (const { out, options } of BUILT) {
    const result = await execa('sh', [`${root}/sys/build.sh`, ...options, `${root}/${out}`], { reject: false, all: true });
    if (result.exitCode !== 0)
      throw new OpError('failed', `building ${out}`, result.all.trim().split('\n').at(-1) ?? 'cc failed', {
        advice: `run: sh ${[`${root}/sys/build.sh`, ...options, `${root}/${out}`].join(' ')}`,
      });
  }
}
