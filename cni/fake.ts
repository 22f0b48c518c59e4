import { ErrnoError } from '../base/sys/errno.ts';
import { addressText, cidrText } from './core/address.ts';
import type { AddressFact, LinkFact, NeighbourFact, RouteFact } from './core/link-facts.ts';
import type { LinkOp, RouteOp } from './core/link-ops.ts';
import type { HostPort } from './core/ports.ts';
import type { Kernel, Refusal } from './io/kernel.ts';

/** The kernel's network in memory: as strict about what is there and what is not, and nothing flows. */

interface Link extends LinkFact {
  readonly peer: { readonly space: Space; readonly name: string } | null;
}

interface Space {
  readonly links: Map<string, Link>;
  addresses: AddressFact[];
  routes: RouteFact[];
}

export class FakeKernel implements Kernel {
  readonly #spaces = new Map<string, Space>();
  /** By table: key and target of each element. */
  readonly elements = new Map<string, Map<string, string>>();
  readonly settings = new Map<string, string>();
  readonly tables: string[] = [];
  #neighbours: NeighbourFact[] = [];
  #forwards: NeighbourFact[] = [];
  #index = 1;
  /** Called before each change; throws or refuses in its place. */
  fault: (what: string) => string | null = () => null;

  constructor() {
    this.addSpace('');
  }

  addSpace(netns: string): void {
    const lo: Link = { index: 1, name: 'lo', mac: '00:00:00:00:00:00', mtu: 65_536, isUp: netns === '', peer: null };
    this.#spaces.set(netns, { links: new Map([['lo', lo]]), addresses: [], routes: [] });
  }

  /** As when its last process ends: links go, with their other ends. */
  removeSpace(netns: string): void {
    const space = this.#of(netns);
    for (const name of space.links.keys()) this.#unlink(space, name);
    this.#spaces.delete(netns);
  }

  #of(netns: string | null): Space {
    const space = this.#spaces.get(netns ?? '');
    if (space === undefined) throw new ErrnoError('netlink', 'ENOENT', 'network namespace');
    return space;
  }

  #unlink(space: Space, name: string): void {
    const link = space.links.get(name);
    if (link === undefined) return;
    space.links.delete(name);
    space.addresses = space.addresses.filter((one) => one.link !== link.index);
    space.routes = space.routes.filter((one) => one.link !== link.index);
    if (link.peer !== null) this.#unlink(link.peer.space, link.peer.name);
  }

  async apply(netns: string | null, ops: readonly LinkOp[]): Promise<Refusal | null> {
    const space = this.#of(netns);
    for (const [at, op] of ops.entries()) {
      const errno = this.fault(op.op) ?? this.#apply(space, op);
      if (errno !== null) return { at, errno, detail: '' };
    }
    return null;
  }

  #apply(space: Space, op: LinkOp): string | null {
    const byIndex = (index: number): Link | undefined => [...space.links.values()].find((link) => link.index === index);
    switch (op.op) {
      case 'add-veth': {
        const host = this.#of('');
        const isTaken = (where: Space, end: { name: string; index: number }): boolean =>
          where.links.has(end.name) || [...where.links.values()].some((link) => link.index === end.index);
        if (isTaken(space, op.end) || isTaken(host, op.peer)) return 'EEXIST';
        const mtu = op.mtu === 0 ? 1500 : op.mtu;
        space.links.set(op.end.name, { ...op.end, mtu, isUp: true, peer: { space: host, name: op.peer.name } });
        host.links.set(op.peer.name, { ...op.peer, mtu, isUp: false, peer: { space, name: op.end.name } });
        return null;
      }
      case 'add-vxlan':
        if (space.links.has(op.name)) return 'EEXIST';
        space.links.set(op.name, { index: 1000 + ++this.#index, name: op.name, mac: op.mac, mtu: op.mtu, isUp: true, peer: null });
        return null;
      case 'set-up': {
        const link = space.links.get(op.link);
        if (link === undefined) return 'ENODEV';
        space.links.set(op.link, { ...link, isUp: true });
        return null;
      }
      case 'delete-link':
        if (!space.links.has(op.link)) return 'ENODEV';
        this.#unlink(space, op.link);
        return null;
      case 'add-address':
        if (byIndex(op.link) === undefined) return 'ENODEV';
        if (space.addresses.some((one) => one.link === op.link && cidrText(one.address) === cidrText(op.address))) return 'EEXIST';
        space.addresses.push({ link: op.link, address: op.address });
        return null;
      case 'add-route':
      case 'replace-route':
      case 'delete-route':
        return this.#route(space, op, byIndex(op.link));
      case 'limit':
        return byIndex(op.link) === undefined ? 'ENODEV' : null;
      case 'set-neighbour':
      case 'delete-neighbour':
        this.#neighbours = this.#neighbours.filter((one) => one.link !== op.link || addressText(one.address) !== addressText(op.address));
        if (op.op === 'set-neighbour') this.#neighbours.push({ link: op.link, mac: op.mac, address: op.address });
        return null;
      case 'set-forward':
      case 'delete-forward':
        this.#forwards = this.#forwards.filter((one) => one.link !== op.link || one.mac !== op.mac);
        if (op.op === 'set-forward') this.#forwards.push({ link: op.link, mac: op.mac, address: op.to });
        return null;
    }
  }

  #route(space: Space, op: RouteOp & { op: string }, link: Link | undefined): string | null {
    const same = (one: RouteFact): boolean => cidrText(one.dst) === cidrText(op.dst);
    if (op.op === 'delete-route') {
      if (!space.routes.some(same)) return 'ESRCH';
      space.routes = space.routes.filter((one) => !same(one));
      return null;
    }
    if (link === undefined) return 'ENODEV';
    if (!link.isUp) return 'ENETDOWN';
    if (op.op === 'add-route' && space.routes.some(same)) return 'EEXIST';
    space.routes = space.routes.filter((one) => !same(one));
    space.routes.push({ dst: op.dst, gateway: op.gateway, link: op.link, protocol: op.protocol, metric: 0 });
    return null;
  }

  async link(netns: string | null, name: string | number): Promise<LinkFact | null> {
    return [...this.#of(netns).links.values()].find((link) => link.name === name || link.index === name) ?? null;
  }

  async links(netns: string | null): Promise<LinkFact[]> {
    return [...this.#of(netns).links.values()];
  }

  async addresses(netns: string | null): Promise<AddressFact[]> {
    return [...this.#of(netns).addresses];
  }

  async routes(netns: string | null): Promise<RouteFact[]> {
    return [...this.#of(netns).routes];
  }

  async neighbours(what: 'neighbours' | 'forwards'): Promise<NeighbourFact[]> {
    return what === 'neighbours' ? [...this.#neighbours] : [...this.#forwards];
  }

  async ports(table: string, what: 'add' | 'replace' | 'remove', ports: readonly HostPort[]): Promise<string | null> {
    const errno = this.fault(`ports-${what}`);
    if (errno !== null) return errno;
    const elements = this.elements.get(table);
    if (elements === undefined) return 'ENOENT';
    const wanted = ports.map((port) => [keyOf(port), `${addressText(port.podIp)}:${port.containerPort}`] as const);
    if (what !== 'replace' && wanted.some(([key, target]) => elements.has(key) && elements.get(key) !== target)) return 'EEXIST';
    if (what === 'replace' && wanted.some(([key]) => !elements.has(key))) return 'ENOENT';
    for (const [key, target] of wanted) {
      if (what === 'remove') elements.delete(key);
      else elements.set(key, target);
    }
    return null;
  }

  /** Reads what it needs of the text: the table's name and the elements of the two maps. */
  async table(text: string): Promise<void> {
    const name = /^table ip (\S+)/m.exec(text)?.[1] ?? '';
    const elements = new Map<string, string>();
    for (const [, list = ''] of text.matchAll(/map host-ports(?:-at)? \{.*?elements = \{ (.*?) \}/g))
      for (const one of list.split(', ')) {
        const [key = '', target = ''] = one.split(' : ');
        elements.set(key, target.replace(' . ', ':'));
      }
    this.elements.set(name, elements);
    this.tables.push(text);
  }

  async forgetFlows(): Promise<void> {}

  async setting(path: string, value: string): Promise<void> {
    this.settings.set(path, value);
  }
}

function keyOf(port: HostPort): string {
  const key = `${port.protocol} . ${port.hostPort}`;
  const at = port.hostIp === null ? key : `${addressText(port.hostIp)} . ${key}`;
  return port.podIp.family === 6 && port.hostIp === null ? `6 ${at}` : at;
}
