import { messageOf } from '../base/errors.ts';
import { isApiError } from '../base/kubeapi/errors.ts';
import * as refs from '../base/kubeapi/refs.ts';
import type { KubeApi, KubeObject, ReflectHandler } from '../base/kubeapi/types.ts';
import type { Log } from '../base/log.ts';
import type { Namespace, NetworkPolicy, Node, Pod } from '../proto/kube/types.ts';
import { clusterPolicyFacts, namesNodes, type ClusterNetworkPolicy, type ClusterPolicy } from './core/cluster-policy.ts';
import {
  keyOf,
  namespaceFacts,
  nodeFacts,
  podFacts,
  policyFacts,
  type Policy,
  type PolicyNamespace,
  type PolicyNode,
  type PolicyPod,
} from './core/policy-facts.ts';

type What = 'policies' | 'clusterPolicies' | 'pods' | 'namespaces' | 'nodes';

export interface CopiesOptions {
  readonly log: Log;
  /** After each change that rules may depend on. */
  readonly changed: () => void;
  /** After each word about a pod, and after a list of all (null). */
  readonly podTold: (key: string | null) => void;
}

/** What of the API rules of policies are made of. Pods and namespaces are watched from the first policy on, nodes from the first that names some. */
export class PolicyCopies {
  readonly policies = new Map<string, Policy>();
  readonly clusterPolicies = new Map<string, ClusterPolicy>();
  readonly pods = new Map<string, PolicyPod>();
  readonly namespaces = new Map<string, PolicyNamespace>();
  readonly nodes = new Map<string, PolicyNode>();
  readonly #options: CopiesOptions;
  readonly #listed = new Set<What>();
  readonly #first = Promise.withResolvers<void>();
  readonly #firstOfNodes = Promise.withResolvers<void>();

  constructor(options: CopiesOptions) {
    this.#options = options;
  }

  /** Nobody is isolated anywhere. */
  get isFree(): boolean {
    return this.policies.size + this.clusterPolicies.size === 0;
  }

  /** Whether everything that rules need was listed once. */
  get isComplete(): boolean {
    const need: What[] = ['policies', 'clusterPolicies'];
    if (!this.isFree) need.push('pods', 'namespaces');
    if (this.#needsNodes()) need.push('nodes');
    return need.every((what) => this.#listed.has(what));
  }

  #needsNodes(): boolean {
    return this.clusterPolicies.values().some(namesNodes);
  }

  async run(api: KubeApi, signal: AbortSignal): Promise<void> {
    const { podTold } = this.#options;
    const stop = (): void => {
      this.#first.resolve();
      this.#firstOfNodes.resolve();
    };
    signal.addEventListener('abort', stop, { once: true });
    const look = (): void => {
      if (!this.isFree) this.#first.resolve();
      if (this.#needsNodes()) this.#firstOfNodes.resolve();
    };
    const policies = this.#copy<NetworkPolicy, Policy>('policies', this.policies, policyFacts, look);
    const clusterPolicies = this.#copy<ClusterNetworkPolicy, ClusterPolicy>('clusterPolicies', this.clusterPolicies, clusterPolicyFacts, look);
    const pods = this.#copy<Pod, PolicyPod>('pods', this.pods, podFacts, podTold);
    const namespaces = this.#copy<Namespace, PolicyNamespace>('namespaces', this.namespaces, namespaceFacts, () => {});
    const nodes = this.#copy<Node, PolicyNode>('nodes', this.nodes, nodeFacts, () => {});
    const once = async (first: Promise<void>, begin: () => Promise<unknown>): Promise<void> => {
      await first;
      if (!signal.aborted) await begin();
    };
    await Promise.all([
      api.reflect(refs.networkPolicies(), {}, policies, signal),
      api.reflect(refs.clusterNetworkPolicies(), {}, { ...clusterPolicies, trouble: (error) => this.#withoutClusterPolicies(error) }, signal),
      once(this.#first.promise, () => Promise.all([api.reflect(refs.pods(), {}, pods, signal), api.reflect(refs.namespaces(), {}, namespaces, signal)])),
      once(this.#firstOfNodes.promise, () => api.reflect(refs.nodes(), {}, nodes, signal)),
    ]);
  }

  /** The API of ClusterNetworkPolicies is one that a cluster may have or not; it is asked again from time to time. */
  #withoutClusterPolicies(error: unknown): void {
    const { log, changed } = this.#options;
    const isDenied = isApiError(error, 403);
    if (!isDenied && !isApiError(error, 404)) return log.debug(1, 'Watch interrupted', { what: 'clusterPolicies', error });
    if (isDenied && !this.#listed.has('clusterPolicies'))
      log.warn('ClusterNetworkPolicies, if there are any, cannot be followed: the account may not list and watch them', { error: messageOf(error) });
    if (this.#listed.has('clusterPolicies') && this.clusterPolicies.size === 0) return;
    this.clusterPolicies.clear();
    this.#listed.add('clusterPolicies');
    changed();
  }

  /** A copy of a collection; `tell` is called after each change of it. */
  #copy<T extends KubeObject, F>(what: What, into: Map<string, F>, facts: (object: T) => F, tell: (key: string | null) => void): ReflectHandler<T> {
    const { log, changed } = this.#options;
    const isNamespaced = what === 'policies' || what === 'pods';
    const keyFor = (object: T): string => (isNamespaced ? keyOf(object) : (object.metadata.name ?? ''));
    let isDenied = false;
    return {
      replaced: (objects) => {
        into.clear();
        for (const object of objects) into.set(keyFor(object), facts(object));
        this.#listed.add(what);
        isDenied = false;
        tell(null);
        changed();
      },
      changed: (type, object) => {
        const key = keyFor(object);
        const before = into.get(key);
        const after = type === 'DELETED' ? undefined : facts(object);
        if (after === undefined) into.delete(key);
        else into.set(key, after);
        tell(key);
        if (JSON.stringify(before, digits) !== JSON.stringify(after, digits)) changed();
      },
      trouble: (error) => {
        if (isApiError(error, 403) && !isDenied) {
          isDenied = true;
          log.error('NetworkPolicies cannot be followed: the account may not list and watch them, pods and namespaces', { what, error: messageOf(error) });
        } else log.debug(1, 'Watch interrupted', { what, error });
      },
      trim,
    };
  }
}

const digits = (_key: string, value: unknown): unknown => (typeof value === 'bigint' ? String(value) : value);

/** Only what the rules depend on is kept of each object. */
function trim<T extends KubeObject>(object: T): T {
  const { name, namespace, labels } = object.metadata;
  const { spec, status } = object as { spec?: Partial<Pod['spec']>; status?: Partial<NonNullable<Pod['status']>> & Partial<NonNullable<Node['status']>> };
  const metadata = { name, namespace, labels };
  if (status?.addresses !== undefined) return { metadata, status: { addresses: status.addresses } } as unknown as T;
  if (spec?.containers === undefined) return { metadata, spec } as unknown as T;
  return {
    metadata,
    spec: {
      nodeName: spec.nodeName,
      hostNetwork: spec.hostNetwork,
      containers: spec.containers.map(portsOf),
      initContainers: spec.initContainers?.map(portsOf),
    },
    status: { phase: status?.phase, podIP: status?.podIP, podIPs: status?.podIPs },
  } as unknown as T;
}

type Container = Pod['spec']['containers'][number];
const portsOf = ({ name, ports, restartPolicy }: Container): Pick<Container, 'name' | 'ports' | 'restartPolicy'> => ({
  name,
  ...(ports === undefined ? {} : { ports }),
  ...(restartPolicy === undefined ? {} : { restartPolicy }),
});
