import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Node, Taint } from '../../../proto/kube/types.ts';
import { DEFAULT_NODE_HEALTH, type NodeAction, NodeHealth } from './node-health.ts';
import { toleratedMs } from './taint-eviction.ts';

const startMs = Date.UTC(2026, 0, 1);

/** A few nodes whose leases are renewed or not, and what the controller does to them. */
class World {
  readonly health = new NodeHealth(DEFAULT_NODE_HEALTH);
  readonly nodes = new Map<string, Node>();
  readonly renewed = new Map<string, string>();
  nowMs = startMs;
  log: string[] = [];

  add(name: string, ready: 'True' | 'False' = 'True'): void {
    const conditions = [{ type: 'Ready', status: ready, lastHeartbeatTime: '2026-01-01T00:00:00Z' }];
    this.nodes.set(name, {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name, uid: name, creationTimestamp: '2026-01-01T00:00:00Z' },
      spec: {},
      status: { conditions },
    });
  }

  beat(...names: string[]): void {
    for (const name of names) this.renewed.set(name, new Date(this.nowMs).toISOString());
  }

  /** Looks until nothing more follows, as the controller does after its own writes. */
  look(): string[] {
    this.log = [];
    for (let round = 0; round < 5; round++) {
      const actions = this.health.tick([...this.nodes.values()], (name) => this.renewed.get(name), this.nowMs, new Date(this.nowMs).toISOString());
      if (actions.length === 0) break;
      for (const action of actions) this.apply(action);
    }
    return this.log;
  }

  apply(action: NodeAction): void {
    if (action.kind === 'removed' || action.kind === 'registered') return;
    const name = action.node.metadata.name ?? '';
    const node = this.nodes.get(name);
    assert.ok(node);
    if (action.kind === 'lost') this.nodes.set(name, { ...node, status: { ...node.status, conditions: action.conditions } });
    if (action.kind === 'taints') this.nodes.set(name, { ...node, spec: { ...node.spec, taints: action.taints } });
    this.log.push(action.kind === 'taints' ? `${name} ${action.taints.map(taintText).join(' ') || 'no taints'}` : `${name} ${action.kind}`);
  }

  pass(seconds: number, ...alive: string[]): string[] {
    const log: string[] = [];
    for (let left = seconds; left > 0; left -= 5) {
      this.nowMs += 5000;
      this.beat(...alive);
      log.push(...this.look());
    }
    return log;
  }
}

const taintText = ({ key, effect }: Taint): string => `${key.replace('node.kubernetes.io/', '')}:${effect}`;

function world(...names: string[]): World {
  const made = new World();
  for (const name of names) made.add(name);
  made.beat(...names);
  made.look();
  return made;
}

test('50 seconds after the last heartbeat a node is lost, tainted, and its pods are told', () => {
  const w = world('n1', 'n2');
  assert.deepEqual(w.pass(50, 'n2'), []);
  assert.deepEqual(w.pass(5, 'n2'), ['n1 lost', 'n1 notReady', 'n1 unreachable:NoSchedule unreachable:NoExecute']);
  assert.equal(w.nodes.get('n1')?.status?.conditions?.[0]?.message, 'Kubelet stopped posting node status.');
});

test('a node that comes back loses its taints at once', () => {
  const w = world('n1', 'n2');
  w.pass(60, 'n2');
  const node = w.nodes.get('n1') as Node;
  w.nodes.set('n1', { ...node, status: { conditions: [{ type: 'Ready', status: 'True', lastHeartbeatTime: '2026-01-01T00:02:00Z' }] } });
  w.beat('n1');
  assert.deepEqual(w.look(), ['n1 no taints']);
});

test('when every node is silent nobody is evicted', () => {
  const one = world('n1');
  assert.deepEqual(one.pass(55), ['n1 lost', 'n1 notReady', 'n1 unreachable:NoSchedule']);
  const two = world('n1', 'n2');
  two.pass(60, 'n2');
  assert.deepEqual(two.pass(60).slice(-3), ['n2 notReady', 'n1 unreachable:NoSchedule', 'n2 unreachable:NoSchedule']);
});

test('at most one node starts to be evicted in ten seconds', () => {
  const w = world('n1', 'n2', 'n3', 'n4', 'n5');
  const log = w.pass(70, 'n3', 'n4', 'n5').filter((line) => line.includes('NoExecute'));
  assert.deepEqual(log, ['n1 unreachable:NoSchedule unreachable:NoExecute', 'n2 unreachable:NoSchedule unreachable:NoExecute']);
  const early = world('n1', 'n2', 'n3', 'n4', 'n5')
    .pass(55, 'n3', 'n4', 'n5')
    .filter((line) => line.includes('NoExecute'));
  assert.equal(early.length, 1);
});

test('a kubelet that says not ready gets the not-ready taint', () => {
  const w = world('n1', 'n2');
  const node = w.nodes.get('n1') as Node;
  w.nodes.set('n1', { ...node, status: { conditions: [{ type: 'Ready', status: 'False', lastHeartbeatTime: '2026-01-01T00:00:10Z' }] } });
  w.beat('n1', 'n2');
  assert.deepEqual(w.look(), ['n1 notReady', 'n1 not-ready:NoSchedule not-ready:NoExecute']);
});

test('how long a pod stays beside NoExecute taints', () => {
  const unreachable: Taint[] = [{ key: 'node.kubernetes.io/unreachable', effect: 'NoExecute' }];
  const pod = (tolerations: object[]) => ({ metadata: {}, spec: { containers: [], tolerations } }) as never;
  assert.equal(toleratedMs(pod([]), unreachable), 0);
  assert.equal(
    toleratedMs(pod([{ key: 'node.kubernetes.io/unreachable', operator: 'Exists', effect: 'NoExecute', tolerationSeconds: 300 }]), unreachable),
    300_000,
  );
  assert.equal(toleratedMs(pod([{ operator: 'Exists' }]), unreachable), 'forever');
  assert.equal(toleratedMs(pod([]), []), 'forever');
});
