import { mergePatch } from '../../base/kubeapi/fake-patch.ts';
import type { Revision } from './proxy-set.ts';

interface Template {
  readonly spec: { readonly affinity?: object };
}

interface SetTree {
  readonly metadata: object;
  readonly spec: { readonly updateStrategy: { readonly type: string }; readonly template: Template };
}

interface FakePod {
  readonly node: string;
  readonly made: number;
  hash: string;
}

/** The DaemonSet kube-proxy of a cluster, with its controller: a pod for each node that the template allows, made anew where the strategy says so. */
export class FakeSet {
  /** What a patch changes. */
  tree: SetTree = {
    metadata: { annotations: { 'deprecated.daemonset.template.generation': '1' } },
    spec: { updateStrategy: { type: 'RollingUpdate', ...{ rollingUpdate: { maxUnavailable: 1 } } }, template: { spec: {} } },
  };
  /** Nodes by name, with the value of the label that keeps the set's pods away. */
  readonly nodes = new Map<string, string | null>();
  readonly revisions: Revision[] = [];
  pods: FakePod[] = [];
  /** The nodes whose pod was made anew because it was of another template. */
  readonly replaced: string[] = [];
  #made = 0;
  #generation = 1;
  #observed = 0;

  constructor(nodes: readonly string[]) {
    for (const node of nodes) this.nodes.set(node, null);
    this.settle();
  }

  toJson(): string {
    const status = { observedGeneration: this.#observed, desiredNumberScheduled: this.pods.length, updatedNumberScheduled: this.#current().length };
    // Who looks again sees that the controller has followed.
    this.#observed = this.#generation;
    return JSON.stringify({ ...this.tree, metadata: { ...this.tree.metadata, uid: 'set', generation: this.#generation }, status });
  }

  patch(text: string): void {
    this.tree = withoutEmpty(mergePatch(this.tree, withoutDirectives(JSON.parse(text)))) as SetTree;
    this.#generation += 1;
    this.settle();
  }

  label(node: string, value: string | null): void {
    this.nodes.set(node, value);
    this.settle();
  }

  relabel(nodes: readonly string[], hash: string): void {
    for (const pod of this.pods) if (nodes.includes(pod.node)) pod.hash = hash;
    this.settle();
  }

  /** What the controller does when something has changed. */
  settle(): void {
    const { template, updateStrategy } = this.tree.spec;
    const wanted = [...this.nodes].filter(([, value]) => template.spec.affinity === undefined || value === null).map(([node]) => node);
    const hash = this.#hash();
    this.pods = this.pods.filter(({ node }) => wanted.includes(node));
    if (updateStrategy.type === 'RollingUpdate')
      this.pods = this.pods.filter((pod) => {
        if (pod.hash === hash) return true;
        this.replaced.push(pod.node);
        return false;
      });
    for (const node of wanted) if (!this.pods.some((pod) => pod.node === node)) this.pods.push({ node, hash, made: (this.#made += 1) });
  }

  #current(): readonly FakePod[] {
    const hash = this.#hash();
    return this.pods.filter((pod) => pod.hash === hash);
  }

  /** The label of the template's revision, which becomes the newest, whether it is new or was there before. */
  #hash(): string {
    const { template } = this.tree.spec;
    const text = JSON.stringify(template);
    const at = this.revisions.findIndex(({ data }) => JSON.stringify(without(data?.spec?.template ?? {})) === text);
    const newest = Math.max(0, ...this.revisions.map(({ revision }) => revision));
    const known = this.revisions[at];
    if (known !== undefined) {
      if (known.revision < newest) this.revisions[at] = { ...known, revision: newest + 1 };
      return known.metadata.labels?.['controller-revision-hash'] ?? '';
    }
    const hash = `hash${this.revisions.length}`;
    this.revisions.push({
      metadata: { labels: { 'controller-revision-hash': hash }, ownerReferences: [{ uid: 'set' }] },
      data: { spec: { template: { $patch: 'replace', ...template } } },
      revision: newest + 1,
    });
    return hash;
  }
}

const without = ({ $patch: _directive, ...template }: Readonly<Record<string, unknown>>): object => template;

/** `$retainKeys` (strategic merge patch): what it does not name goes. */
function withoutDirectives(patch: unknown): unknown {
  if (typeof patch !== 'object' || patch === null || Array.isArray(patch)) return patch;
  const tree = Object.fromEntries(Object.entries(patch).map(([key, value]) => [key, withoutDirectives(value)]));
  if (!Array.isArray(tree['$retainKeys'])) return tree;
  const { $retainKeys: _kept, ...rest } = tree;
  return { rollingUpdate: null, ...rest };
}

function withoutEmpty(tree: unknown): unknown {
  if (typeof tree !== 'object' || tree === null || Array.isArray(tree)) return tree;
  return Object.fromEntries(
    Object.entries(tree)
      .filter(([, value]) => value !== null)
      .map(([key, value]) => [key, withoutEmpty(value)]),
  );
}
