/** Calls that change something: those that only look come when a kubelet likes. */
export const CHANGES: ReadonlySet<string> = new Set([
  'RunPodSandbox',
  'StopPodSandbox',
  'RemovePodSandbox',
  'CreateContainer',
  'StartContainer',
  'StopContainer',
  'RemoveContainer',
  'UpdateContainerResources',
  'UpdatePodSandboxResources',
  'PullImage',
  'ExecSync',
]);

/** Calls by what they are about, each with its number among its like: `StopPodSandbox`, `StopPodSandbox again 1`. */
export class CallNames {
  readonly #seen = new Map<string, number>();

  /** @param about `<container main#0>`; empty when the method says enough */
  next(method: string, about: string): string {
    const base = about === '' ? method : `${method} ${about}`;
    const count = (this.#seen.get(base) ?? 0) + 1;
    this.#seen.set(base, count);
    return count === 1 ? base : `${base} again ${count - 1}`;
  }
}

/** Containers of a pod are removed side by side, so that their order says nothing: it is made one, by `textOf`. */
export function settled<T extends { readonly method: string }>(calls: readonly T[], textOf: (call: T) => string): T[] {
  const out: T[] = [];
  for (let at = 0; at < calls.length;) {
    const method = calls[at]?.method ?? '';
    let end = at + 1;
    if (method === 'RemoveContainer') while (calls[end]?.method === method) end += 1;
    const run = calls.slice(at, end);
    out.push(...(run.length === 1 ? run : run.sort((a, b) => (textOf(a) < textOf(b) ? -1 : 1))));
    at = end;
  }
  return out;
}
