import { hasCode, messageOf } from '../../base/errors.ts';
import { RpcError, runtimeMessage } from '../../cri/mod.ts';
import type { CriClient } from '../../cri/mod.ts';

/** What the agent asks of a runtime. */
export type Cri = Pick<CriClient, 'runtime' | 'images'>;

/** The runtime's own words, without what surrounds them. */
export function runtimeWords(error: unknown): string {
  return error instanceof RpcError ? error.description : messageOf(error);
}

/** The runtime's words for a waiting state, ours where it has none. */
export function failureWords(error: unknown): string {
  const words = runtimeWords(error);
  return words === '' ? messageOf(error) : words;
}

/** As a Go client prints it, which is how event texts of Kubernetes carry it. */
export function rpcErrorText(error: unknown): string {
  return runtimeMessage(error);
}

/** The same for a pull, of which upstream leaves out a code that says nothing. */
export function pullErrorText(error: unknown): string {
  return error instanceof RpcError && error.status === 'Unknown' ? error.description : runtimeMessage(error);
}

export function isNotFound(error: unknown): boolean {
  return hasCode(error, 'not-found');
}

/** What is gone already need not be taken away. */
export async function ignoreMissing(call: Promise<unknown>): Promise<void> {
  try {
    await call;
  } catch (error) {
    if (!isNotFound(error)) throw error;
  }
}
