import { firstProcess, servicesOf } from '../io/running.ts';
import { memoryOf } from '../io/processes.ts';
import { requireSet, table, type Context } from './context.ts';

const mib = (bytes: number | null): string => (bytes === null ? '-' : `${(bytes / 2 ** 20).toFixed(0)} MiB`);

export async function status(context: Context): Promise<number> {
  const { saved, plan } = await requireSet(context);
  const places = [{ name: 'hub', dir: plan.hub.dir }, ...plan.nodes.map((node) => ({ name: node.name, dir: node.dir }))];
  const processes: { place: string; name: string; pid: number | null; restarts: number; memoryBytes: number | null }[] = [];
  const running = new Map<string, number>();
  for (const place of places) {
    const first = await firstProcess(place.dir);
    if (first === null) continue;
    running.set(place.name, first.pid);
    processes.push({ place: place.name, name: 'init', pid: first.pid, restarts: 0, memoryBytes: await memoryOf(first.pid) });
    for (const service of await servicesOf(place.dir, first)) processes.push({ place: place.name, ...service });
  }
  const data = {
    name: plan.name,
    running: running.has('hub'),
    kubeconfig: `${plan.state}/admin.kubeconfig`,
    server: plan.server,
    controlPlane: saved.options.controlPlane,
    podCIDR: plan.podCidr,
    serviceCIDR: plan.serviceCidr,
    clusterDNS: plan.dnsIp,
    nodes: plan.nodes.map((node) => ({
      name: node.name,
      running: running.has(node.name),
      pid: running.get(node.name) ?? null,
      ip: node.ip,
      podCIDR: node.podCidr,
      cgroup: node.cgroup,
      directory: node.dir,
    })),
    processes,
  };
  context.answer(data, [
    `set ${data.name}: ${data.running ? 'running' : 'not running'}, API server ${data.server}`,
    `kubeconfig ${data.kubeconfig}`,
    '',
    ...table([['NODE', 'STATE', 'IP', 'PODS'], ...data.nodes.map((node) => [node.name, node.running ? 'running' : 'stopped', node.ip, node.podCIDR])]),
    '',
    ...table([
      ['WHERE', 'PROCESS', 'PID', 'RESTARTS', 'MEMORY'],
      ...processes.map((row) => [row.place, row.name, row.pid === null ? 'down' : String(row.pid), String(row.restarts), mib(row.memoryBytes)]),
    ]),
  ]);
  return 0;
}
