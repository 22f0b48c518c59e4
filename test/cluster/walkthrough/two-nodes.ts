import assert from 'node:assert/strict';
import { shop, shopService } from '../../walkthrough/manifests.ts';
import type { Lab } from './lab.ts';
import { ASIDE, pinned, spread } from './manifests.ts';
import { countByNode, podsOf, readyPods, type SliceSeen } from './objects.ts';
import type { Step } from './step.ts';

interface EventSeen {
  readonly reason: string;
  readonly message: string;
  readonly involvedObject: { readonly name: string };
  readonly metadata: { readonly resourceVersion: string };
}

/** What every step of part 2 stands on. */
export async function shopThere(lab: Lab): Promise<void> {
  await lab.kubectl(['create', 'namespace', 'shop']);
  await lab.k(['apply', '-f', '-'], shop());
  await lab.k(['apply', '-f', '-'], shopService);
  await lab.k(['-n', 'shop', 'rollout', 'status', 'deploy/web', '--timeout=110s']);
}

/** Waits until kube-proxy or netfilter of a node answers for a Service. */
const ask = (lab: Lab, node: Lab['workers'][number], url: string) => lab.inside(node, ['curl', '-sS', '--max-time', '5', url]);

export const twoNodes: readonly Step[] = [
  {
    id: '2.1',
    what: 'pods on both nodes',
    async run(lab) {
      await lab.k(['wait', '--for=condition=Ready', 'nodes', '--all', '--timeout=110s']);
      await lab.kubectl(['taint', 'node', lab.aside.name, `${ASIDE}=:NoSchedule`]);
      await shopThere(lab);
      const counts = countByNode(await readyPods(lab, 'shop', 'app=web', 3));
      assert.ok(!counts.has(lab.aside.name), 'the tainted node has none');
      assert.deepEqual([...counts.values()], [2, 1]);
      await lab.k(['apply', '-f', '-'], spread);
      const strict = countByNode(await readyPods(lab, 'shop', 'app=spread', 3));
      assert.deepEqual([...strict.values()], [2, 1]);
      await lab.k(['-n', 'shop', 'delete', 'deploy', 'spread']);
      return { exact: { tainted: 0, doNotSchedule: [...strict.values()] }, seen: { web: [...counts.values()] } };
    },
  },
  {
    id: '2.2',
    what: 'a kubelet asks for its own pods, and gets no Secret of others',
    async run(lab) {
      await lab.k(['-n', 'shop', 'create', 'secret', 'generic', 'nobodys', '--from-literal=a=b']);
      const exact: Record<string, unknown> = {};
      const events = await lab.audit();
      for (const node of lab.workers) {
        const asked = events.filter(
          ({ user, resource, verb }) => user === `system:node:${node.name}` && resource === 'pods' && (verb === 'list' || verb === 'watch'),
        );
        assert.ok(asked.length > 0, `${node.name} asked for pods`);
        for (const { uri } of asked) assert.equal(new URL(uri, 'http://server').searchParams.get('fieldSelector'), `spec.nodeName=${node.name}`, uri);
        const { code, err } = await lab.asKubelet(node, ['-n', 'shop', 'get', 'secret', 'nobodys']);
        assert.equal(code, 1);
        const said = `Error from server (Forbidden): secrets "nobodys" is forbidden: User "system:node:${node.name}" cannot get resource "secrets" in API group "" in the namespace "shop": `;
        const why = `no relationship found between node '${node.name}' and this object`;
        // 1.37 names the authorizer before its reason.
        assert.ok([said + why, `${said}node: ${why}`].includes(err.trim()), err);
        exact[node.name] = 'spec.nodeName=<itself>, 403';
      }
      await lab.k(['-n', 'shop', 'delete', 'secret', 'nobodys']);
      return { exact };
    },
  },
  {
    id: '2.3',
    what: 'each node has its slice of the range, and pods see each other by IP',
    async run(lab) {
      const range = lab.plan.podCidr.split('.').slice(0, 2).join('.');
      const slices = (await lab.k(['get', 'nodes', '-o', 'jsonpath={.items[*].spec.podCIDR}'])).split(' ');
      assert.deepEqual(slices, [`${range}.1.0/24`, `${range}.2.0/24`, `${range}.3.0/24`]);
      const all = (await lab.get<{ items: Awaited<ReturnType<typeof podsOf>> }>(['pods', '-A'])).items;
      for (const [at, node] of lab.workers.entries()) {
        const addresses = all
          .filter(({ spec }) => spec.nodeName === node.name)
          .map(({ status }) => status.podIP ?? '')
          .filter((address) => address.startsWith(`${range}.${at + 1}.`));
        assert.ok(addresses.includes(`${range}.${at + 1}.2`), `the first pod of ${node.name} has .2 (${addresses.join(' ')})`);
        assert.ok(addresses.includes(`${range}.${at + 1}.3`), `the next pod of ${node.name} has .3 (${addresses.join(' ')})`);
      }
      for (const [at, node] of lab.workers.entries()) await lab.k(['apply', '-f', '-'], pinned(`see-${at + 1}`, node.name, { namespace: 'shop' }));
      const exact: Record<string, unknown> = { slices: slices.map((slice) => slice.replace(range, '<range>')) };
      const [one, two] = await Promise.all(['see-1', 'see-2'].map(async (name) => (await readyPods(lab, 'shop', `app=${name}`, 1))[0]));
      for (const [from, to] of [
        [one, two],
        [two, one],
      ]) {
        const [source, target] = [from?.status.podIP ?? '', to?.status.podIP ?? ''];
        await lab.k(['-n', 'shop', 'exec', from?.metadata.name ?? '', '--', 'wget', '-q', '-O', '/dev/null', `http://${target}/`]);
        const seen = await lab.eventually('the request in the log', 20_000, async () => {
          const log = await lab.k(['-n', 'shop', 'logs', to?.metadata.name ?? '']);
          return log.includes(source) ? source : null;
        });
        exact[`${from?.metadata.name} asks ${to?.metadata.name}`] = seen === source ? 'the other side sees the pod’s IP' : seen;
      }
      await lab.k(['-n', 'shop', 'delete', 'pod', 'see-1', 'see-2']);
      return { exact };
    },
  },
  {
    id: '2.4',
    what: 'each node pulls an image once',
    async run(lab) {
      await lab.k(['-n', 'shop', 'scale', 'deploy/web', '--replicas=7']);
      const pods = await readyPods(lab, 'shop', 'app=web', 7);
      const { items } = await lab.get<{ items: EventSeen[] }>(['-n', 'shop', 'events']);
      const pulls: number[] = [];
      const told: number[] = [];
      for (const node of lab.workers) {
        const own = new Set(pods.filter(({ spec }) => spec.nodeName === node.name).map(({ metadata }) => metadata.name));
        const pulled = items.filter(({ reason, involvedObject }) => reason === 'Pulled' && own.has(involvedObject.name));
        assert.equal(pulled.length, own.size, 'one Pulled for each pod');
        const present = pulled.filter(({ message }) => message.startsWith('Container image "nginx:1.30-alpine" already present on machine'));
        told.push(present.length);
        pulls.push(pulled.length - present.length);
      }
      await lab.k(['-n', 'shop', 'scale', 'deploy/web', '--replicas=3']);
      await readyPods(lab, 'shop', 'app=web', 3);
      // Pods that come at the same moment each ask the runtime, which fetches once.
      assert.ok(
        pulls.every((count) => count >= 1 && count <= 2) && told.every((count) => count >= 1),
        `${pulls.join(' ')} pulls, ${told.join(' ')} already present`,
      );
      return { exact: { laterPods: 'already present on machine' }, seen: { pulls, told } };
    },
  },
  {
    id: '2.5',
    what: 'the ClusterIP reaches pods of both nodes from either',
    async run(lab) {
      const pods = await readyPods(lab, 'shop', 'app=web', 3);
      for (const { metadata } of pods) await lab.k(['-n', 'shop', 'exec', metadata.name, '--', 'sh', '-c', 'hostname >/usr/share/nginx/html/index.html']);
      const address = await lab.k(['-n', 'shop', 'get', 'service', 'web', '-o', 'jsonpath={.spec.clusterIP}']);
      await lab.eventually('three endpoints', 60_000, async () => {
        const { items } = await lab.get<{ items: SliceSeen[] }>(['-n', 'shop', 'endpointslices', '-l', 'kubernetes.io/service-name=web']);
        return items.flatMap(({ endpoints }) => endpoints).filter(({ conditions }) => conditions.ready).length === 3 ? true : null;
      });
      const exact: Record<string, unknown> = {};
      const seen: Record<string, unknown> = {};
      for (const node of lab.workers) {
        await lab.eventually('the Service answers', 60_000, async () => ((await ask(lab, node, `http://${address}/`)).code === 0 ? true : null));
        const counts = new Map(pods.map(({ metadata }) => [metadata.name, 0]));
        for (let at = 0; at < 36; at += 1) {
          const { out, code, err } = await ask(lab, node, `http://${address}/`);
          assert.equal(code, 0, err);
          counts.set(out.trim(), (counts.get(out.trim()) ?? 0) + 1);
        }
        assert.equal(counts.size, 3, [...counts.keys()].join(' '));
        assert.ok(
          [...counts.values()].every((count) => count > 0),
          'each pod was reached',
        );
        exact[node.name] = 'all 3 pods';
        seen[node.name] = [...counts.values()].sort((a, b) => a - b);
      }
      // The next steps begin with nothing there.
      await lab.k(['delete', 'namespace', 'shop', '--timeout=110s']);
      return { exact, seen };
    },
  },
];
