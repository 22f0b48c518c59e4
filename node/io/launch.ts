import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { execa } from 'execa';
import { OpError } from '../../base/errors.ts';
import { initSpec, nsrunArguments, type Place } from '../core/launch.ts';
import { processOf, type HostProcess } from './processes.ts';

/** Milliseconds are usual; a slow and loaded machine takes many seconds. */
const LAUNCH_MS = 90_000;

/**
 * Starts a hub or a node: namespaces of its own with `sys` as their first process, which starts the services. The
 * process outlives this command; `init.pid` names it, with its start time, for the commands that follow.
 */
export async function launch(sys: string, place: Place): Promise<HostProcess> {
  for (const dir of [`${place.dir}/log`, ...place.folders]) await mkdir(dir, { recursive: true });
  for (const file of place.files) await writeFile(file, '', { flag: 'a' });
  await writeFile(`${place.dir}/init.spec`, initSpec(place), { mode: 0o600 });
  const result = await execa(sys, nsrunArguments(place), { reject: false, all: true, timeout: LAUNCH_MS });
  if (result.exitCode !== 0)
    throw new OpError('failed', `starting ${place.hostname}`, result.all.trim() || `sys ended with ${result.exitCode}`, {
      advice: 'see: nodelet doctor',
    });
  const pid = Number((await readFile(`${place.dir}/init.pid`, 'utf8')).trim().split(' ')[0]);
  const found = await processOf(pid);
  if (found === null) throw new OpError('failed', `starting ${place.hostname}`, 'its first process ended at once', { advice: `see ${place.dir}/log/init.log` });
  await writeFile(`${place.dir}/init.pid.tmp`, `${found.pid} ${found.startTicks}\n`);
  await rename(`${place.dir}/init.pid.tmp`, `${place.dir}/init.pid`);
  return found;
}
