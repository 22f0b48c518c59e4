import { lookup } from 'node:dns/promises';
import { readdir, readFile, statfs } from 'node:fs/promises';
import { isIP, isIPv4 } from 'node:net';
import { createSocket } from 'node:dgram';
import { arch, cpus, hostname, networkInterfaces, release } from 'node:os';
import type { Clock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';
import { inUserNamespace, type MachineFacts, type NodeAddress } from '../core/node-status.ts';

/** Go's names of the architectures this program has been built for. */
const goArchitectures: Readonly<Record<string, string>> = { x64: 'amd64', arm64: 'arm64', arm: 'arm', s390x: 's390x', ppc64: 'ppc64le', riscv64: 'riscv64' };

async function readText(path: string): Promise<string> {
  try {
    return (await readFile(path, 'utf8')).trim();
  } catch {
    return '';
  }
}

/** What nodeInfo and capacity need; once at start. */
export async function readMachine(): Promise<MachineFacts> {
  const [meminfo, osRelease, machineID, machineIDAlternative, bootID, uidMap, hugepages] = await Promise.all([
    readText('/proc/meminfo'),
    readText('/etc/os-release'),
    readText('/etc/machine-id'),
    readText('/var/lib/dbus/machine-id'),
    readText('/proc/sys/kernel/random/boot_id'),
    readFile('/proc/self/uid_map', 'utf8').catch(() => null),
    readHugepages(),
  ]);
  const kib = (field: string): number => Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(meminfo)?.[1] ?? 0) * 1024;
  return {
    hostname: hostname().trim().toLowerCase(),
    architecture: goArchitectures[arch()] ?? arch(),
    kernelVersion: release(),
    osImage: /^PRETTY_NAME=["']?(.*?)["']?$/m.exec(osRelease)?.[1] ?? 'Linux',
    machineID: machineID === '' ? machineIDAlternative : machineID,
    systemUUID: await readSystemUUID(machineID),
    bootID,
    cpus: cpus().length,
    memoryBytes: kib('MemTotal'),
    swapBytes: kib('SwapTotal'),
    hugepages,
    ...(uidMap === null ? {} : { inUserNamespace: inUserNamespace(uidMap) }),
  };
}

/** DMI where there is one; else what systeminformation finds (device tree, hypervisor); else the machine id. */
async function readSystemUUID(machineID: string): Promise<string> {
  const dmi = await readText('/sys/class/dmi/id/product_uuid');
  if (dmi !== '') return dmi.toLowerCase();
  try {
    const { default: information } = await import('systeminformation');
    const { hardware } = await information.uuid();
    if (hardware !== '') return hardware.toLowerCase();
  } catch {
    // Nothing else depends on it.
  }
  return machineID;
}

async function readHugepages(): Promise<Record<string, number>> {
  const root = '/sys/kernel/mm/hugepages';
  const sizes: Record<string, number> = {};
  for (const entry of (await readdir(root).catch(() => [] as string[])).toSorted()) {
    const kib = Number(/^hugepages-(\d+)kB$/.exec(entry)?.[1] ?? 0);
    if (kib === 0) continue;
    const name = kib % (1 << 20) === 0 ? `${kib >> 20}Gi` : `${kib >> 10}Mi`;
    sizes[name] = Number(await readText(`${root}/${entry}/nr_hugepages`)) * kib * 1024;
  }
  return sizes;
}

/** Size of the file system under `path`; null when it cannot be told. The root directory is no volume, so the call is safe here. */
export async function fileSystemBytes(path: string): Promise<number | null> {
  try {
    const facts = await statfs(path);
    return facts.bsize * facts.blocks;
  } catch {
    return null;
  }
}

/**
 * The node's addresses by upstream's order of preference: `--node-ip`, the name itself when it is an address, what
 * the name resolves to when that is an address of this machine, the address of the default route's interface.
 * Throws OpError `invalid` for a `--node-ip` this machine does not have.
 */
export async function nodeAddresses(nodeName: string, nodeIPs: readonly string[]): Promise<NodeAddress[]> {
  const local = localAddresses();
  const name: NodeAddress = { type: 'Hostname', address: nodeName };
  const given = nodeIPs.filter((ip) => ip !== '0.0.0.0' && ip !== '::');
  if (given.length > 0) {
    for (const ip of given) {
      if (isIP(ip) === 0) throw new OpError('invalid', 'read --node-ip', `${JSON.stringify(ip)} is not an IP address`);
      if (!local.includes(ip) && !(await isBindable(ip)))
        throw new OpError('invalid', 'read --node-ip', `${ip} is not an address of this machine`, { advice: `Its addresses are ${local.join(', ')}.` });
    }
    return [...given.map((address): NodeAddress => ({ type: 'InternalIP', address })), name];
  }
  const usable = isIP(nodeName) === 0 ? ((await resolved(nodeName, local)) ?? (await defaultRouteAddress()) ?? local.find(isIPv4) ?? local[0]) : nodeName;
  if (usable === undefined) throw new OpError('invalid', 'find the node address', 'this machine has no global address', { advice: 'Give one with --node-ip.' });
  return [{ type: 'InternalIP', address: usable }, name];
}

const addressPollMs = 20;
const addressWaitMs = 3000;

/** Waits some seconds for the addresses of `--node-ip`: while a machine starts its links come up beside us. */
export async function waitForAddresses(clock: Clock, nodeIPs: readonly string[], signal: AbortSignal): Promise<void> {
  const given = nodeIPs.filter((ip) => isIP(ip) !== 0 && ip !== '0.0.0.0' && ip !== '::');
  const untilMs = clock.monoMs() + addressWaitMs;
  while (clock.monoMs() < untilMs) {
    const local = localAddresses();
    const found = await Promise.all(given.map(async (ip) => local.includes(ip) || isBindable(ip)));
    if (found.every(Boolean)) return;
    await clock.sleep(addressPollMs, signal);
  }
}

/** Whether the kernel takes an address for its own: links without a carrier are missing among Node's interfaces. */
async function isBindable(ip: string): Promise<boolean> {
  if (ip.startsWith('127.') || ip === '::1') return false;
  const socket = createSocket(isIPv4(ip) ? 'udp4' : 'udp6');
  try {
    return await new Promise<boolean>((resolve) => {
      socket.once('error', () => resolve(false));
      socket.bind({ address: ip, port: 0, exclusive: true }, () => resolve(true));
    });
  } finally {
    socket.close();
  }
}

function localAddresses(): string[] {
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ internal, scopeid, address }) => !internal && (scopeid ?? 0) === 0 && !address.startsWith('169.254.'))
    .map(({ address }) => address);
}

async function resolved(nodeName: string, local: readonly string[]): Promise<string | undefined> {
  const addresses = await lookup(nodeName, { all: true }).catch(() => []);
  const own = addresses.map(({ address }) => address).filter((address) => local.includes(address));
  return own.find(isIPv4) ?? own[0];
}

async function defaultRouteAddress(): Promise<string | undefined> {
  const routes = (await readText('/proc/net/route')).split('\n').slice(1);
  const interfaceName = routes.map((line) => line.split('\t')).find((fields) => fields[1] === '00000000')?.[0];
  return (networkInterfaces()[interfaceName ?? ''] ?? []).find(({ family, internal }) => family === 'IPv4' && !internal)?.address;
}
