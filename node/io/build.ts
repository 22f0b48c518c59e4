import { readdir, stat } from 'node:fs/promises';
import { execa } from 'execa';
import { OpError } from '../../base/errors.ts';

async function mtimeMs(path: string): Promise<number> {
  return stat(path).then(
    (info) => info.mtimeMs,
    () => 0,
  );
}

/** Whether the C program has to be built: it is not there, or a source is newer. A release without sources never builds. */
export async function sysIsStale(root: string): Promise<boolean> {
  const built = await mtimeMs(`${root}/dist/sys`);
  const sources = await readdir(`${root}/sys`).catch(() => [] as string[]);
  if (sources.length === 0) return built === 0;
  for (const name of sources) if (/\.[ch]$|\.sh$/.test(name) && (await mtimeMs(`${root}/sys/${name}`)) > built) return true;
  return false;
}

export async function buildSys(root: string): Promise<void> {
  const result = await execa('sh', [`${root}/sys/build.sh`, `${root}/dist/sys`], { reject: false, all: true });
  if (result.exitCode !== 0)
    throw new OpError('failed', 'building sys', result.all.trim().split('\n').at(-1) ?? 'cc failed', {
      advice: `run: sh ${root}/sys/build.sh ${root}/dist/sys`,
    });
}
