import type { ContainerConfig, PodSandboxConfig } from '../proto/cri/types.ts';
import { RpcError } from './errors.ts';
import type { CallOptions, Interceptor, RuntimeCall } from './transport.ts';

/** How a call ended: what the runtime answered, or what was thrown. */
export type Outcome = { answer: object } | { error: unknown };

/**
 * Calls as one stable line each, for golden scripts and for people. Ids are random, so they are replaced by names:
 * `default/web-0#0` is a sandbox (attempt 0), `default/web-0/app#2` a container.
 */
export class CallRenderer {
  readonly #names = new Map<string, string>();

  /** The name of a sandbox or container id that was made before this renderer's eyes; else the id's first digits. */
  nameOf(id: string): string {
    return this.#names.get(id) ?? `?${id.slice(0, 12)}`;
  }

  line(call: RuntimeCall, outcome: Outcome): string {
    const request = call.request as Record<string, unknown>;
    const subject = this.#subject(call, request);
    if ('answer' in outcome) {
      const answer = outcome.answer as { podSandboxId?: string; containerId?: string; exitCode?: number };
      if (call.method === 'RunPodSandbox' && answer.podSandboxId !== undefined) this.#names.set(answer.podSandboxId, subject);
      if (call.method === 'CreateContainer' && answer.containerId !== undefined) this.#names.set(answer.containerId, subject.split(' ')[0] ?? '');
      const result = call.method === 'ExecSync' ? ` -> ${answer.exitCode}` : '';
      return `${call.method}${subject === '' ? '' : ` ${subject}`}${result}`;
    }
    const { error } = outcome;
    const failure = error instanceof RpcError ? error.status : error instanceof Error ? error.message : String(error);
    return `${call.method}${subject === '' ? '' : ` ${subject}`} ! ${failure}`;
  }

  #subject({ method }: RuntimeCall, request: Record<string, unknown>): string {
    switch (method) {
      case 'RunPodSandbox': {
        const { metadata } = (request['config'] ?? {}) as PodSandboxConfig;
        return `${metadata?.namespace ?? ''}/${metadata?.name ?? ''}#${metadata?.attempt ?? 0}`;
      }
      case 'CreateContainer': {
        const { metadata, image } = (request['config'] ?? {}) as ContainerConfig;
        const pod = this.nameOf(String(request['podSandboxId'])).replace(/#\d+$/, '');
        return `${pod}/${metadata?.name ?? ''}#${metadata?.attempt ?? 0} image=${image?.image ?? ''}`;
      }
      case 'StopContainer':
        return `${this.nameOf(String(request['containerId']))} timeout=${Number(request['timeout'] ?? 0)}s`;
      case 'ExecSync':
        return `${this.nameOf(String(request['containerId']))} ${((request['cmd'] ?? []) as string[]).join(' ')}`;
      case 'PullImage':
      case 'ImageStatus':
      case 'RemoveImage':
        return ((request['image'] ?? {}) as { image?: string }).image ?? '';
      default: {
        const id = request['containerId'] ?? request['podSandboxId'];
        return typeof id === 'string' && id !== '' ? this.nameOf(id) : '';
      }
    }
  }

  /** Puts every call's line into `write` when it has ended; `only` leaves out others (listings, say). */
  recorder(write: (line: string) => void, only: (method: string) => boolean = () => true): Interceptor {
    return {
      call: async (call: RuntimeCall, options: CallOptions, next: (call: RuntimeCall, options: CallOptions) => Promise<object>) => {
        try {
          const answer = await next(call, options);
          const line = this.line(call, { answer });
          if (only(call.method)) write(line);
          return answer;
        } catch (error) {
          const line = this.line(call, { error });
          if (only(call.method)) write(line);
          throw error;
        }
      },
    };
  }
}
