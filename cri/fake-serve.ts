import type { FakeRuntime } from './fake.ts';
import { serveRuntime, type ServedRuntime } from './io/serve-grpc.ts';

export type { ServedRuntime };

/** The fake runtime behind a true gRPC server on a unix socket. */
export function serveFake(runtime: FakeRuntime, path: string): Promise<ServedRuntime> {
  return serveRuntime(runtime, path);
}
