import { access, readFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { realClock } from '../base/clock.ts';
import { messageOf, OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import { createLog, type Log } from '../base/log.ts';
import { createSysClient } from '../base/sys/client.ts';
import type { Sys } from '../base/sys/types.ts';
import { version } from '../base/version.ts';
import { readDaemonConfig, type DaemonConfig } from './core/conflist.ts';
import { removalText } from './core/policy-table.ts';
import { Engine, type EngineOptions } from './engine.ts';
import { installPlugin } from './io/install.ts';
import { createKernel, type Kernel } from './io/kernel.ts';
import { createPolicyTable } from './io/policy-table.ts';
import { openStore } from './io/store.ts';
import { takeTurn } from './io/turn.ts';

export const HELP = `nodelet cni: the pod network plugin (CNI spec 0.3.1 to 1.1)

Usage:
  nodelet cni daemon --config FILE   answers the plugin's calls and keeps the ways to other nodes
  nodelet cni plugin                 one call, as a runtime makes it: CNI_… in the environment, the network on standard input
  nodelet cni cleanup                takes the rules of NetworkPolicies away, once no daemon runs
  nodelet cni install FOLDER         puts the plugin (nodelet, loopback, fallback) into a folder of the runtime's
  nodelet cni --help | --version

The daemon also lives in the service proxy's process: nodelet netfilter --cni-config FILE …
docs/cni.md tells the fields of FILE and of the network configuration.

Examples:
  nodelet cni daemon --config /etc/nodelet/cni.json
  nodelet cni install /opt/cni/bin
`;

async function openSys(host: Host, log: Log): Promise<Sys> {
  const path = host.env['NODELET_SYS'] ?? '';
  return path === '' ? (await import('../base/sys/fallback.ts')).createFallbackSys({ log }) : createSysClient({ path, log });
}

async function openEngine(host: Host, kernel: Kernel, log: Log, more: Pick<EngineOptions, 'gate' | 'takeTurn'>): Promise<Engine> {
  const hasIpv6 = await access('/proc/net/if_inet6').then(
    () => true,
    () => false,
  );
  const families = hasIpv6 ? ([4, 6] as const) : ([4] as const);
  return new Engine({ kernel, openStore, pid: host.pid, families, monoMs: () => realClock.monoMs(), log, ...more });
}

const logOf = (host: Host, verbosity: number): Log =>
  createLog({ name: 'cni', verbosity, nowMs: () => realClock.nowMs(), pid: host.pid, write: (line) => host.stderr(line) });

async function plugin(host: Host): Promise<number> {
  const log = logOf(host, 0);
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
  await using sys = await openSys(host, log);
  using engine = await openEngine(host, createKernel(sys), log, { takeTurn });
  const { code, text } = await engine.call(host.env, Buffer.concat(chunks).toString('utf8'));
  host.stdout(text);
  return code;
}

async function readConfig(path: string): Promise<DaemonConfig> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new OpError('not-found', `reading ${path}`, 'there is no such file that can be read', { cause });
  });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new OpError('invalid', `reading ${path}`, (cause as Error).message, { cause });
  }
  const { config, problems } = readDaemonConfig(value);
  if (problems.length > 0) throw new OpError('invalid', `reading ${path}`, problems.join('; '));
  return config;
}

async function daemon(host: Host, path: string): Promise<number> {
  const config = await readConfig(path);
  const log = logOf(host, config.verbosity);
  await using sys = await openSys(host, log);
  const kernel = createKernel(sys);
  const [{ runDaemon }, { PolicyNetwork }] = await Promise.all([import('./daemon.ts'), import('./policy.ts')]);
  const policy = new PolicyNetwork({ nodeName: config.nodeName, table: createPolicyTable(sys), clock: realClock, log });
  using engine = await openEngine(host, kernel, log, config.kubeconfig === '' ? {} : { gate: policy });
  await using api = config.kubeconfig === '' ? null : await connect(config, log);
  await runDaemon({ config, engine, kernel, policy, api, clock: realClock, log }, host.signal);
  return 0;
}

/** Takes the policies' rules away, which stay when a daemon ends: nobody is isolated on this node then. */
async function cleanup(host: Host): Promise<number> {
  await using sys = await openSys(host, logOf(host, 0));
  await createPolicyTable(sys).write(removalText());
  return 0;
}

async function connect(config: DaemonConfig, log: Log): Promise<import('../base/kubeapi/types.ts').KubeApi> {
  const [{ createPlainKubeApi }, { readKubeConfig }, { realRng }] = await Promise.all([
    import('../base/kubeapi/plain.ts'),
    import('../base/kubeapi/config.ts'),
    import('../base/rng.ts'),
  ]);
  return createPlainKubeApi({ config: await readKubeConfig(config.kubeconfig), log, clock: realClock, rng: realRng, userAgent: `nodelet-cni/${version}` });
}

async function install(host: Host, folder: string): Promise<number> {
  const root = host.env['NODELET_ROOT'] ?? process.cwd();
  await installPlugin(folder, { front: `${root}/dist/cni/nodelet`, node: process.execPath, bundle: `${root}/dist/nodelet.mjs`, sys: `${root}/dist/sys` });
  host.stdout(`nodelet, loopback and fallback are in ${folder}\n`);
  return 0;
}

/** `nodelet cni …`. */
export async function main(host: Host): Promise<number> {
  try {
    const { positionals, values } = parseArgs({
      args: [...host.args],
      allowPositionals: true,
      options: { config: { type: 'string' }, help: { type: 'boolean', short: 'h' }, version: { type: 'boolean' } },
    });
    const [command, argument] = positionals;
    if (values.version === true) {
      host.stdout(`nodelet ${version}\n`);
      return 0;
    }
    if (values.help === true) {
      host.stdout(HELP);
      return 0;
    }
    if (command === 'plugin') return await plugin(host);
    if (command === 'daemon' && values.config !== undefined) return await daemon(host, values.config);
    if (command === 'cleanup') return await cleanup(host);
    if (command === 'install' && argument !== undefined) return await install(host, argument);
    host.stderr(HELP);
    return 2;
  } catch (error) {
    const isUsage = (error as { code?: string }).code?.startsWith('ERR_PARSE_ARGS') === true;
    if (!isUsage && !(error instanceof OpError)) throw error;
    const advice = error instanceof OpError ? error.advice : 'see: nodelet cni --help';
    host.stderr(`nodelet cni: ${messageOf(error)}${advice === '' ? '' : `\n  ${advice}`}\n`);
    return isUsage ? 2 : 1;
  }
}
