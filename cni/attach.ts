import type { Log } from '../base/log.ts';
import { messageOf } from '../base/errors.ts';
import { ErrnoError } from '../base/sys/errno.ts';
import { addressText, type Address } from './core/address.ts';
import { toldAddresses, type Attachment, type Call, type NetConf } from './core/config.ts';
import { CniError, CODE } from './core/errors.ts';
import { allocate, type Given } from './core/ipam.ts';
import type { LinkOp } from './core/link-ops.ts';
import { hostLinkName } from './core/names.ts';
import { planAttach, type AttachPlan } from './core/plan.ts';
import { hostPortsOf, isForLocalhost, type HostPort } from './core/ports.ts';
import type { Result } from './core/result.ts';
import type { HostTable } from './host-table.ts';
import type { Kernel, Refusal } from './io/kernel.ts';
import type { Store } from './io/store.ts';
import { reconcile } from './reconcile.ts';
import type { Uplink } from './uplink.ts';

/** What is needed to connect pods of one data folder. */
export interface Workshop {
  readonly dataDir: string;
  readonly kernel: Kernel;
  readonly store: Store;
  readonly table: HostTable;
  readonly uplink: Uplink;
  readonly pid: number;
  readonly families: readonly (4 | 6)[];
  readonly log: Log;
}

/** Interface numbers are guessed; this many guesses. */
const INDEX_TRIES = 8;

/**
 * ADD. The store first, the kernel second: what a death leaves in between is named by a row, or by a link whose name
 * follows from the pod, and goes with the DEL that the runtime owes, or with the next look at everything.
 */
export async function add(workshop: Workshop, call: Call, conf: NetConf): Promise<Result> {
  const { store, kernel, table, uplink } = workshop;
  if (conf.rangeSets.length === 0) throw new CniError(CODE.invalidConfig, 'invalid network configuration: "ipam.ranges" is missing');
  await requireFresh(workshop, call, conf);
  const [{ given, ports }, mtu] = await Promise.all([reserve(workshop, call, conf), conf.mtu > 0 ? conf.mtu : uplink.mtu()]);
  try {
    await forward(workshop, given);
    await table.setMasquerade(conf);
    const plan = await connect(workshop, call, conf, given, mtu);
    await Promise.all([finishOutside(kernel, plan, ports), table.add(ports)]);
    if (!(await store.transaction(() => store.finish(conf.name, call)))) throw new CniError(CODE.tryAgain, 'the pod was removed while it was added');
    return plan.result;
  } catch (error) {
    await undo(workshop, call, conf.name, ports).catch((second: unknown) => workshop.log.warn('An ADD could not be taken back', { error: messageOf(second) }));
    throw error;
  }
}

async function finishOutside(kernel: Kernel, plan: AttachPlan, ports: readonly HostPort[]): Promise<void> {
  refuse(await kernel.apply(null, plan.outside), plan.outside);
  if (ports.some(isForLocalhost)) await kernel.setting(`ipv4/conf/${plan.hostLink}/route_localnet`, '1');
}

/** A pod that is there is an error; what an interrupted ADD left is cleared away. */
async function requireFresh(workshop: Workshop, call: Call, conf: NetConf): Promise<void> {
  const { store, kernel } = workshop;
  const found = store.find(conf.name, call);
  if (found === null) return;
  if (found.phase === 'ready' && (await kernel.link(null, found.hostLink)) !== null)
    throw new CniError(
      CODE.invalidEnvironment,
      `${call.ifname} of container ${call.containerId} is connected to ${conf.name} already`,
      'DEL comes before another ADD',
    );
  await remove(workshop, call, conf.name);
}

/** Addresses and ports in the store; when none is free, after what dead pods hold was taken back. */
async function reserve(workshop: Workshop, call: Call, conf: NetConf): Promise<{ given: Given[]; ports: HostPort[] }> {
  try {
    return await reserveNow(workshop, call, conf);
  } catch (error) {
    const isFull = error instanceof CniError && (error.code === CODE.exhausted || error.code === CODE.portTaken);
    if (!isFull || (await reconcile(workshop)).pods === 0) throw error;
    return await reserveNow(workshop, call, conf);
  }
}

async function reserveNow({ store, dataDir }: Workshop, call: Call, conf: NetConf): Promise<{ given: Given[]; ports: HostPort[] }> {
  const taken = { has: (address: Address): boolean => store.isTaken(conf.name, address) };
  return await store.transaction(() => {
    store.insert({
      network: conf.name,
      containerId: call.containerId,
      ifname: call.ifname,
      hostLink: hostLinkName(dataDir, conf.name, call.containerId, call.ifname),
      phase: 'adding',
    });
    const wanted = [...conf.wanted];
    const given = conf.rangeSets.map((ranges, set) => {
      const at = wanted.findIndex((address) =>
        ranges.some((range) => range.subnet.family === address.family && address.value >= range.first && address.value <= range.last),
      );
      const asked = at < 0 ? null : wanted.splice(at, 1)[0]!;
      const one = allocate(ranges, taken, store.lastGiven(conf.name, set), asked);
      store.take(conf.name, one.address, call);
      if (asked === null) store.setLastGiven(conf.name, set, one.address);
      return one;
    });
    if (wanted[0] !== undefined) throw new CniError(CODE.invalidConfig, `address ${addressText(wanted[0])} was asked for and is in no range`);
    const ports = hostPortsOf(conf.ports, given);
    const holder = store.holderOf(ports);
    if (holder !== null)
      throw new CniError(CODE.portTaken, `host port ${holder.port.hostPort}/${holder.port.protocol} belongs to container ${holder.containerId}`);
    store.insertPorts(conf.name, call, ports);
    return { given, ports };
  });
}

/** Makes the node a router for the families of the pod. */
async function forward({ kernel }: Workshop, given: readonly Given[]): Promise<void> {
  if (given.some((one) => one.address.family === 4)) await kernel.setting('ipv4/ip_forward', '1');
  if (given.some((one) => one.address.family === 6)) await kernel.setting('ipv6/conf/all/forwarding', '1');
}

async function connect(workshop: Workshop, call: Call, conf: NetConf, given: readonly Given[], mtu: number): Promise<AttachPlan> {
  for (let salt = 0; ; salt++) {
    const plan = planAttach(conf, call, given, { mtu, pid: workshop.pid, salt });
    const refused = await inPod(call, () => workshop.kernel.apply(call.netns, plan.inside));
    if (refused === null) return plan;
    // A number or a name is taken: names are not guessed, so the link itself tells which.
    const isTaken = refused.at === 0 && (refused.errno === 'EEXIST' || refused.errno === 'EBUSY');
    if (!isTaken || salt === INDEX_TRIES) refuse(refused, plan.inside);
    if ((await inPod(call, () => workshop.kernel.link(call.netns, call.ifname))) !== null)
      throw new CniError(CODE.invalidEnvironment, `there is an interface ${call.ifname} in ${call.netns} already`);
    await workshop.kernel.apply(null, [{ op: 'delete-link', link: plan.hostLink }]);
  }
}

/** A namespace that cannot be entered is the caller's. */
async function inPod<T>(call: Pick<Call, 'netns'>, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof ErrnoError && error.message.includes('network namespace'))
      throw new CniError(CODE.unknownContainer, `cannot enter the network namespace ${call.netns}: ${error.errno}`);
    throw error;
  }
}

function refuse(refused: Refusal | null, ops: readonly LinkOp[]): void {
  if (refused === null) return;
  const what = ops[refused.at]?.op ?? 'the change';
  throw new CniError(CODE.kernel, `cannot ${what.replace('-', ' ')}: ${refused.errno}`, refused.detail);
}

/** DEL: nothing there is success; the namespace may be gone, and need not be named. */
export async function remove(workshop: Workshop, who: Attachment & { readonly netns: string }, network: string): Promise<void> {
  await undo(workshop, who, network, workshop.store.ports({ network, who }));
}

async function undo({ store, kernel, table, dataDir }: Workshop, who: Attachment, network: string, ports: readonly HostPort[]): Promise<void> {
  const link = hostLinkName(dataDir, network, who.containerId, who.ifname);
  const [refused] = await Promise.all([kernel.apply(null, [{ op: 'delete-link', link }]), table.remove(ports)]);
  if (refused !== null && refused.errno !== 'ENODEV') throw new CniError(CODE.kernel, `cannot remove the link ${link}: ${refused.errno}`, refused.detail);
  // Last: an address is free once nothing leads to it any more.
  if (store.find(network, who) !== null) await store.transaction(() => store.remove(network, who));
}

/** CHECK: links, addresses and routes are as ADD left them. */
export async function check(workshop: Workshop, call: Call, conf: NetConf): Promise<void> {
  const { store, kernel } = workshop;
  const differs = (what: string): CniError => new CniError(CODE.differs, what);
  const found = store.find(conf.name, call);
  if (found === null) throw new CniError(CODE.unknownContainer, `container ${call.containerId} is not connected to ${conf.name}`);
  const given = store.addressesOf(conf.name, call);
  const told = toldAddresses(conf.prevResult);
  for (const address of given)
    if (told.length > 0 && !told.includes(addressText(address))) throw differs(`address ${addressText(address)} is not in the previous result`);
  const outside = await kernel.link(null, found.hostLink);
  if (outside === null || !outside.isUp) throw differs(`the node’s link ${found.hostLink} is ${outside === null ? 'gone' : 'down'}`);
  const inside = await inPod(call, () => kernel.link(call.netns, call.ifname));
  if (inside === null || !inside.isUp) throw differs(`${call.ifname} is ${inside === null ? 'gone' : 'down'}`);
  const [addresses, podRoutes, routes] = await Promise.all([kernel.addresses(call.netns), kernel.routes(call.netns), kernel.routes(null)]);
  for (const address of given) {
    const text = addressText(address);
    if (!addresses.some((one) => one.link === inside.index && addressText(one.address) === text)) throw differs(`${call.ifname} lost its address ${text}`);
    if (!routes.some((route) => route.link === outside.index && route.gateway === null && addressText(route.dst) === text))
      throw differs(`the node lost its route to ${text}`);
    if (conf.routes.length === 0 && !podRoutes.some((route) => route.link === inside.index && route.dst.prefix === 0 && route.dst.family === address.family))
      throw differs(`${call.ifname} lost its default route`);
  }
  for (const { dst } of conf.routes) {
    const known = podRoutes.some((route) => route.dst.prefix === dst.prefix && route.dst.family === dst.family && route.dst.value === dst.value);
    if (!known && given.some((address) => address.family === dst.family)) throw differs(`${call.ifname} lost its route to ${addressText(dst)}/${dst.prefix}`);
  }
}
