import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { exec } from '../../base/exec.ts';
import { listSpecs } from './ginkgo-report.ts';
import type { Spec } from './suites.ts';

const DRY_RUN_MS = 5 * 60_000;

export interface SpecList {
  /** The suite's description: what Ginkgo puts before each name when it filters. */
  readonly description: string;
  readonly specs: readonly Spec[];
}

/** All specs of a Ginkgo test binary, by a dry run; asked once for each binary, and remembered in `cache`. */
export async function askSpecs(binary: string, cache: string, args: readonly string[], signal: AbortSignal): Promise<SpecList> {
  const { size, mtimeMs } = await stat(binary);
  const key = createHash('sha256')
    .update(JSON.stringify([binary, size, mtimeMs, args]))
    .digest('hex')
    .slice(0, 16);
  const path = `${cache}/specs-${key}.json`;
  const remembered = await readFile(path, 'utf8').catch(() => null);
  if (remembered !== null) return JSON.parse(remembered) as SpecList;
  const dir = await mkdtemp(`${tmpdir()}/nodelet-specs-`);
  try {
    const report = `${dir}/report.json`;
    await exec([binary, '--ginkgo.dry-run', '--ginkgo.silence-skips', '--ginkgo.succinct', '--ginkgo.no-color', `--ginkgo.json-report=${report}`, ...args], {
      doing: `listing the specs of ${binary}`,
      cwd: dir,
      timeoutMs: DRY_RUN_MS,
      signal,
    });
    const list = listSpecs(await readFile(report, 'utf8'));
    await mkdir(cache, { recursive: true });
    await writeFile(`${path}.${process.pid}.tmp`, JSON.stringify(list));
    await rename(`${path}.${process.pid}.tmp`, path);
    return list;
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}
