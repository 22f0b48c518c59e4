import { chmod, readFile, unlink, writeFile } from 'node:fs/promises';
import { execa } from 'execa';
import { OpError } from '../../base/errors.ts';
import type { Machine } from './machine.ts';

/** Packages of the distribution that a set needs and this machine lacks, by what they bring. */
export function missingPackages(machine: Machine, options: { wantCompiler: boolean; wantPlugins?: boolean }): string[] {
  const missing: string[] = [];
  const { programs } = machine;
  if (programs.containerd === undefined) missing.push('containerd');
  if (programs.runc === undefined) missing.push('runc');
  if (machine.cniBinDir === null && options.wantPlugins !== false) missing.push('containernetworking-plugins');
  if (programs.ip === undefined) missing.push('iproute2');
  if (programs.nft === undefined) missing.push('nftables');
  if (programs.iptables === undefined) missing.push('iptables');
  if (programs.nsenter === undefined) missing.push('util-linux');
  if (programs.busybox === undefined) missing.push('busybox-static');
  if (programs.catatonit === undefined) missing.push('catatonit');
  if (options.wantCompiler && programs.cc === undefined) missing.push('gcc', 'libc6-dev');
  return missing;
}

/** Packages that only the tests need. */
export function missingForTests(machine: Machine): string[] {
  const { programs } = machine;
  const missing: string[] = [];
  if (programs.conntrack === undefined) missing.push('conntrack');
  if (programs.openssl === undefined) missing.push('openssl');
  if (programs.pgrep === undefined) missing.push('procps');
  if (programs.git === undefined) missing.push('git');
  return missing;
}

const POLICY = '/usr/sbin/policy-rc.d';
const NO_SERVICES = '#!/bin/sh\n# nodelet is installing packages; where none is being installed, remove this file.\nexit 101\n';

/** Installs packages without letting them start services: the node runs its own containerd, not the host's. */
export async function installPackages(names: readonly string[]): Promise<void> {
  const env = { DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C' };
  // What we wrote ourselves and were killed before removing counts as absent.
  const policy = await readFile(POLICY, 'utf8').catch(() => null);
  const guarded = policy === null || policy === NO_SERVICES;
  if (guarded) {
    await writeFile(POLICY, NO_SERVICES);
    await chmod(POLICY, 0o755);
  }
  try {
    const install = (): Promise<{ exitCode?: number; all?: string | undefined }> =>
      execa('apt-get', ['install', '-y', '--no-install-recommends', '-o', 'DPkg::Lock::Timeout=120', ...names], { env, reject: false, all: true });
    let result = await install();
    if (result.exitCode !== 0) {
      const update = await execa('apt-get', ['update', '-q'], { env, reject: false, all: true });
      result = await install();
      if (result.exitCode !== 0) {
        const words = `${update.exitCode === 0 ? '' : `${update.all}\n`}${result.all}`;
        throw new OpError('failed', `installing ${names.join(', ')}`, cause(words), { advice: `run: apt-get update && apt-get install ${names.join(' ')}` });
      }
    }
  } finally {
    if (guarded) await unlink(POLICY).catch(() => undefined);
  }
}

/** The first error of apt-get names the cause; those behind it follow from it. */
function cause(text: string): string {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return lines.find((line) => line.startsWith('E:')) ?? lines.at(-1) ?? 'no output';
}
