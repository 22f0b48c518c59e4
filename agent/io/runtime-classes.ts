import { OpError } from '../../base/errors.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import type { KubeApi, KubeObject } from '../../base/kubeapi/types.ts';
import type { RuntimeClasses } from './step-types.ts';

type RuntimeClass = KubeObject & { handler: string };

/** Asked for when a sandbox is made, and only by pods that name one: they are few and change hardly ever. */
export function createRuntimeClasses(api: KubeApi): RuntimeClasses {
  return {
    async handlerOf(name, signal) {
      if (name === undefined || name === '') return '';
      try {
        const found = await api.get<RuntimeClass>({ group: 'node.k8s.io', version: 'v1', resource: 'runtimeclasses', name }, {}, signal);
        return found.handler;
      } catch (error) {
        if (isApiError(error, 404)) throw new OpError('not-found', 'look up the runtime class', `RuntimeClass "${name}" not found`, { cause: error });
        throw error;
      }
    },
  };
}
