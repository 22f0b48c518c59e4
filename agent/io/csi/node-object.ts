import type { Clock } from '../../../base/clock.ts';
import { messageOf, OpError } from '../../../base/errors.ts';
import { isApiError } from '../../../base/kubeapi/errors.ts';
import { csiNodes, nodes, subresource } from '../../../base/kubeapi/refs.ts';
import type { KubeApi } from '../../../base/kubeapi/types.ts';
import type { Log } from '../../../base/log.ts';
import type { CSINode, Node, StorageHealthCondition } from '../../../proto/kube/types.ts';
import { sameStorageHealth } from '../../core/csi/health.ts';
import { newCsiNode, nodePatch, nodePatchWithout, ownsCsiNode, withDriver, withMigrated, withoutDriver } from '../../core/csi/node-object.ts';
import type { DriverNodeInfo } from '../../core/csi/node-object.ts';
import { Turns } from '../../../base/turns.ts';

export interface CsiNodeObjectOptions {
  readonly api: KubeApi;
  readonly clock: Clock;
  readonly log: Log;
  readonly nodeName: string;
}

const call = { timeoutMs: 10_000 };
const tries = 6;
const firstPauseMs = 30;
const growth = 3;

/** What the API server is told of the CSI drivers of this node: the CSINode, and the Node's annotation and labels. */
export class CsiNodeObject {
  readonly #options: CsiNodeObjectOptions;
  readonly #turns = new Turns();

  constructor(options: CsiNodeObjectOptions) {
    this.#options = options;
  }

  /** Makes the CSINode, so that a scheduler knows a node without drivers from one that has not come up. */
  async ensure(signal: AbortSignal): Promise<void> {
    await this.#retried('initialize the CSINode', signal, async () => {
      const { object } = await this.#owned(signal);
      await this.#put(withMigrated(object), signal);
    });
  }

  /** A driver has registered. Throws OpError when the API server does not take it. */
  async add(info: DriverNodeInfo, signal: AbortSignal): Promise<void> {
    if (info.nodeId === '') throw new OpError('invalid', 'add CSI driver node info', 'driverNodeID must not be empty');
    await this.#retried('update Node object with CSI driver node info', signal, async () => {
      const node = await this.#node(signal);
      const planned = nodePatch(node, info);
      if (!planned.ok) throw new OpError('conflict', 'update the Node', planned.message);
      if (planned.patch !== null) await this.#patchNode(planned.patch, signal);
    });
    await this.#retried('update CSINode object with CSI driver node info', signal, async () => {
      const { object } = await this.#owned(signal);
      await this.#put(withDriver(withMigrated(object) ?? object, info), signal);
    });
  }

  /** A driver is gone. */
  async remove(driver: string, signal: AbortSignal): Promise<void> {
    await this.#retried('remove a CSI driver from the CSINode', signal, async () => {
      try {
        const object = await this.#options.api.get<CSINode>(csiNodes(this.#options.nodeName), call, signal);
        await this.#put(withoutDriver(object, driver), signal);
      } catch (error) {
        if (!isApiError(error, 404)) throw error;
      }
    });
    await this.#retried('remove a CSI driver from the Node', signal, async () => {
      const patch = nodePatchWithout(await this.#node(signal), driver);
      if (patch !== null) await this.#patchNode(patch, signal);
    });
  }

  /** What a driver says of its storage, where that is news; others' words stay. */
  async tellHealth(driver: string, healthConditions: readonly StorageHealthCondition[], signal: AbortSignal): Promise<void> {
    await this.#retried('update the health of storage in the CSINode', signal, async () => {
      const { object } = await this.#owned(signal);
      const told = object.status?.storageHealth ?? [];
      if (sameStorageHealth(told.find(({ name }) => name === driver)?.healthConditions ?? [], healthConditions)) return;
      const others = told.filter(({ name }) => name !== driver);
      const storageHealth = healthConditions.length === 0 ? others : [...others, { name: driver, healthConditions: [...healthConditions] }];
      const next = { ...object, status: { ...object.status, storageHealth } };
      await this.#options.api.update<CSINode>(subresource(csiNodes(this.#options.nodeName), 'status'), next, call, signal);
    });
  }

  async #node(signal: AbortSignal): Promise<Node> {
    return await this.#options.api.get<Node>(nodes(this.#options.nodeName), call, signal);
  }

  async #patchNode(patch: object, signal: AbortSignal): Promise<void> {
    await this.#options.api.patch<Node>(subresource(nodes(this.#options.nodeName), 'status'), 'strategic', patch, call, signal);
  }

  async #put(object: CSINode | null, signal: AbortSignal): Promise<void> {
    if (object !== null) await this.#options.api.update<CSINode>(csiNodes(this.#options.nodeName), object, call, signal);
  }

  /** The CSINode of this very Node, made where there is none. One of a deleted namesake is deleted; the next try makes it. */
  async #owned(signal: AbortSignal): Promise<{ object: CSINode }> {
    const { api, nodeName } = this.#options;
    const node = await this.#node(signal);
    let object: CSINode;
    try {
      object = await api.get<CSINode>(csiNodes(nodeName), call, signal);
    } catch (error) {
      if (!isApiError(error, 404)) throw error;
      return { object: await api.create<CSINode>(csiNodes(), newCsiNode(node), call, signal) };
    }
    if (ownsCsiNode(node, object)) return { object };
    await api.delete(csiNodes(nodeName), {}, call, signal);
    throw new OpError('conflict', 'take over the CSINode', `CSINode "${nodeName}" was owned by different node, deleted it`);
  }

  /** Several tries with growing pauses, one change at a time. */
  async #retried(doing: string, signal: AbortSignal, work: () => Promise<void>): Promise<void> {
    const { clock, log, nodeName } = this.#options;
    await this.#turns.take('', async () => {
      let pauseMs = firstPauseMs;
      for (let attempt = 1; ; attempt += 1) {
        try {
          await work();
          return;
        } catch (error) {
          signal.throwIfAborted();
          if (attempt === tries) throw new OpError('failed', doing, messageOf(error), { cause: error });
          log.debug(2, 'Will try again', { doing, node: nodeName, err: messageOf(error) });
        }
        await clock.sleep(pauseMs, signal);
        pauseMs *= growth;
      }
    });
  }
}
