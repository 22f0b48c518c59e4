import { execa } from 'execa';
import { OpError } from '../../base/errors.ts';
import type { NodePlan, SetPlan } from '../core/plan.ts';

async function ip(lines: readonly string[], doing: string, pid?: number): Promise<void> {
  const command = pid === undefined ? ['ip'] : ['nsenter', '-t', String(pid), '-n', 'ip'];
  const result = await execa(command[0] ?? 'ip', [...command.slice(1), '-batch', '-'], { input: `${lines.join('\n')}\n`, reject: false });
  if (result.exitCode !== 0) throw new OpError('failed', doing, result.stderr.trim().split('\n')[0] ?? 'ip failed');
}

/** Makes a namespace of ours a router; the settings are the namespace's own. */
async function forward(pid: number, isDual: boolean): Promise<void> {
  const settings = ['ipv4/ip_forward', ...(isDual ? ['ipv6/conf/all/forwarding'] : [])].map((path) => `echo 1 > /proc/sys/net/${path}`);
  const result = await execa('nsenter', ['-t', String(pid), '-n', 'sh', '-c', settings.join(' && ')], { reject: false });
  if (result.exitCode !== 0) throw new OpError('denied', 'letting the hub forward packets', result.stderr.trim());
}

/** What IPv4 addresses of the host lead where: routes, and addresses of links that are down and so have none. */
export async function hostRoutes(): Promise<{ dst: string; dev: string }[]> {
  const ask = async <T>(args: readonly string[]): Promise<T[]> => {
    const result = await execa('ip', ['-4', '-json', ...args], { reject: false });
    if (result.exitCode !== 0) throw new OpError('failed', 'reading the addresses of this machine', result.stderr.trim() || 'ip failed');
    return JSON.parse(result.stdout || '[]') as T[];
  };
  const [routes, links] = await Promise.all([
    ask<{ dst: string; dev?: string }>(['route', 'show', 'table', 'main']),
    ask<{ ifname?: string; addr_info?: { local?: string; prefixlen?: number }[] }>(['address', 'show']),
  ]);
  const addresses = links.flatMap((link) =>
    (link.addr_info ?? []).map((address) => ({ dst: `${address.local}/${address.prefixlen}`, dev: link.ifname ?? '?' })),
  );
  return [...routes.map((route) => ({ dst: route.dst, dev: route.dev ?? '?' })), ...addresses];
}

export async function hasHostLink(set: SetPlan): Promise<boolean> {
  return (await execa('ip', ['link', 'show', 'dev', set.hub.hostLink], { reject: false })).exitCode === 0;
}

/**
 * Ties the hub to the host: one link, and the routes of pods and Services over it. Nothing else of the host's
 * network is touched; all of it goes with the hub's network namespace.
 */
export async function connectHub(set: SetPlan, hubPid: number): Promise<void> {
  const { hub } = set;
  await removeHostLink(set);
  await ip([`link add ${hub.hostLink} type veth peer name host0 netns ${hubPid}`], 'connecting the hub');
  await ip(
    [
      'link set lo up',
      'link add br0 type bridge',
      `addr add ${hub.ip}/24 dev br0`,
      'link set br0 up',
      'link set host0 master br0',
      'link set host0 up',
      `route add default via ${hub.hostIp} dev br0`,
      // Both families end here: the second one leads nowhere outside.
      ...(set.ipv6 === null ? [] : [`addr add ${set.ipv6.hubIp}/64 dev br0 nodad`]),
    ],
    'connecting the hub',
    hubPid,
  );
  await Promise.all([forward(hubPid, set.ipv6 !== null), hostEnd(set)]);
}

async function hostEnd(set: SetPlan): Promise<void> {
  const { hub } = set;
  await ip(
    [
      `addr add ${hub.hostIp}/24 dev ${hub.hostLink}`,
      `link set ${hub.hostLink} up`,
      `route add ${set.podCidr} via ${hub.ip} dev ${hub.hostLink}`,
      `route add ${set.serviceCidr} via ${hub.ip} dev ${hub.hostLink}`,
    ],
    'adding the routes of pods and Services',
  );
}

/**
 * Removes the host's end of the link. A network namespace outlives its processes while the kernel still closes TCP
 * connections in it, which can take minutes; the link and its routes must not.
 */
export async function removeHostLink(set: SetPlan): Promise<void> {
  await execa('ip', ['link', 'delete', set.hub.hostLink], { reject: false });
}

/** Ties a node to the hub and to the nodes that run already. */
export async function connectNode(set: SetPlan, node: NodePlan, hubPid: number, nodePid: number): Promise<void> {
  await ip(
    [`link add n${node.number} type veth peer name eth0 netns ${nodePid}`, `link set n${node.number} master br0`, `link set n${node.number} up`],
    `connecting ${node.name}`,
    hubPid,
  );
  // Our pod network keeps these routes itself.
  const others = (set.cni === 'nodelet' ? [] : set.nodes.filter((other) => other.number !== node.number)).flatMap((other) => [
    `route add ${other.podCidr} via ${other.ip} dev eth0`,
    ...(other.ipv6 === null ? [] : [`route add ${other.ipv6.podCidr} via ${other.ipv6.ip} dev eth0`]),
  ]);
  const second =
    node.ipv6 === null || set.ipv6 === null ? [] : [`addr add ${node.ipv6.ip}/64 dev eth0 nodad`, `route add default via ${set.ipv6.hubIp} dev eth0`];
  await ip(
    ['link set lo up', `addr add ${node.ip}/24 dev eth0`, 'link set eth0 up', `route add default via ${set.hub.ip} dev eth0`, ...second, ...others],
    `connecting ${node.name}`,
    nodePid,
  );
  await forward(nodePid, node.ipv6 !== null);
}

/** Points the hub's routes at the nodes that run: each node's pods, and Services over all of them. */
export async function routeHub(set: SetPlan, running: readonly NodePlan[], hubPid: number): Promise<void> {
  const lines = running.flatMap((node) => [
    `route replace ${node.podCidr} via ${node.ip} dev br0`,
    ...(node.ipv6 === null ? [] : [`route replace ${node.ipv6.podCidr} via ${node.ipv6.ip} dev br0`]),
  ]);
  if (running.length > 0) lines.push(`route replace ${set.serviceCidr} ${running.map((node) => `nexthop via ${node.ip} dev br0 weight 1`).join(' ')}`);
  if (lines.length > 0) await ip(lines, 'routing to the nodes', hubPid);
}
