import type { ImageServiceMethods, RuntimeServiceMethods } from '../../proto/cri/types.ts';
import { OpError, messageOf } from '../../base/errors.ts';

export interface CriCall {
  timeoutMs?: number;
  signal?: AbortSignal;
}

type Unary<Methods> = {
  [Name in keyof Methods as Methods[Name] extends { stream: false } ? Uncapitalize<Name & string> : never]: Methods[Name] extends { request: infer Request; response: infer Response }
    ? (request: Request, call?: CriCall) => Promise<Response>
    : never;
};

/** What the agent asks of a runtime; the client of room cri/ and its fake both fit. */
export interface Cri {
  readonly runtime: Unary<RuntimeServiceMethods>;
  readonly images: Unary<ImageServiceMethods>;
}

const grpcNames = ['OK', 'Canceled', 'Unknown', 'InvalidArgument', 'DeadlineExceeded', 'NotFound', 'AlreadyExists', 'PermissionDenied', 'ResourceExhausted', 'FailedPrecondition', 'Aborted', 'OutOfRange', 'Unimplemented', 'Internal', 'Unavailable', 'DataLoss', 'Unauthenticated'];

/** The runtime's own words, without what surrounds them. */
export function runtimeWords(error: unknown): string {
  return grpcPart(error)?.details ?? messageOf(error);
}

/** As a Go client prints it, which is how event texts of Kubernetes carry it. */
export function rpcErrorText(error: unknown): string {
  const part = grpcPart(error);
  return part === undefined ? messageOf(error) : `rpc error: code = ${grpcNames[part.code] ?? `Code(${part.code})`} desc = ${part.details}`;
}

/** The first error of the chain that carries a gRPC status. */
function grpcPart(error: unknown): { code: number; details: string } | undefined {
  for (let each: unknown = error, depth = 0; each instanceof Error && depth < 5; each = each.cause, depth += 1) {
    const { code, details, grpcCode } = each as { code?: unknown; details?: unknown; grpcCode?: unknown };
    const number = typeof code === 'number' ? code : grpcCode;
    if (typeof number === 'number' && typeof details === 'string') return { code: number, details };
  }
  return undefined;
}

export function isNotFound(error: unknown): boolean {
  return (error instanceof OpError && error.code === 'not-found') || grpcPart(error)?.code === 5;
}
