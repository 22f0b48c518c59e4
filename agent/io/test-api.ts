import type { CallOptions, KubeApi, KubeObject, ReflectHandler, ResourceRef } from '../../base/kubeapi/types.ts';

export interface ApiCall {
  verb: 'get' | 'list' | 'create' | 'update' | 'patch' | 'delete' | 'raw';
  ref: ResourceRef;
  body: unknown;
  lane: string;
}

/** An API server whose answers a test writes by hand: `answer` returns the object or throws. */
export class ScriptedApi implements KubeApi {
  readonly calls: ApiCall[] = [];
  readonly reflected: { ref: ResourceRef; handler: ReflectHandler<KubeObject> }[] = [];
  answer: (call: ApiCall) => unknown;

  constructor(answer: (call: ApiCall) => unknown) {
    this.answer = answer;
  }

  async #call<T>(verb: ApiCall['verb'], ref: ResourceRef, body: unknown, options?: CallOptions): Promise<T> {
    const call = { verb, ref, body: structuredClone(body), lane: options?.lane ?? 'requests' };
    this.calls.push(call);
    return structuredClone((await this.answer(call)) as T);
  }

  /** `create leases/n1` and so on, for comparing. */
  summary(): string[] {
    return this.calls.map(({ verb, ref }) => `${verb} ${[ref.resource, ref.name, ref.subresource].filter((part) => part !== undefined).join('/')}`);
  }

  get<T>(ref: ResourceRef, options?: CallOptions): Promise<T> {
    return this.#call('get', ref, undefined, options);
  }
  list<T>(ref: ResourceRef, _list?: unknown, options?: CallOptions): Promise<T> {
    return this.#call('list', ref, undefined, options);
  }
  create<T>(ref: ResourceRef, body: unknown, options?: CallOptions): Promise<T> {
    return this.#call('create', ref, body, options);
  }
  update<T>(ref: ResourceRef, body: unknown, options?: CallOptions): Promise<T> {
    return this.#call('update', ref, body, options);
  }
  patch<T>(ref: ResourceRef, _type: string, body: unknown, options?: CallOptions): Promise<T> {
    return this.#call('patch', ref, body, options);
  }
  delete(ref: ResourceRef, body?: unknown, options?: CallOptions): Promise<KubeObject> {
    return this.#call('delete', ref, body, options);
  }
  async raw(): Promise<{ status: number; headers: Record<string, string>; body: Uint8Array }> {
    return { status: 404, headers: {}, body: new Uint8Array() };
  }
  async reflect<T extends KubeObject>(ref: ResourceRef, _selector: object, handler: ReflectHandler<T>, signal: AbortSignal): Promise<void> {
    this.reflected.push({ ref, handler });
    await new Promise<void>((resolve) => {
      if (signal.aborted) resolve();
      else signal.addEventListener('abort', () => resolve(), { once: true });
    });
  }
  async [Symbol.asyncDispose](): Promise<void> {}
}
