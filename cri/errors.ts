import { OpError, type OpCode } from '../base/errors.ts';
import { rpcStatuses, type RpcStatus } from './core/status.ts';

export { rpcStatuses, type RpcStatus };

/** Ours for each of gRPC's statuses. */
const codes: Readonly<Record<RpcStatus, OpCode>> = {
  OK: 'failed',
  Canceled: 'aborted',
  Unknown: 'failed',
  InvalidArgument: 'invalid',
  DeadlineExceeded: 'deadline',
  NotFound: 'not-found',
  AlreadyExists: 'exists',
  PermissionDenied: 'denied',
  ResourceExhausted: 'exhausted',
  FailedPrecondition: 'failed',
  Aborted: 'conflict',
  OutOfRange: 'invalid',
  Unimplemented: 'unsupported',
  Internal: 'failed',
  Unavailable: 'unavailable',
  DataLoss: 'failed',
  Unauthenticated: 'denied',
};

/** What a runtime answered instead of a result. */
export class RpcError extends OpError {
  /** gRPC's number. */
  readonly grpcCode: number;
  readonly status: RpcStatus;
  /** The runtime's own words. */
  readonly description: string;

  /**
   * @param doing the method, as `RunPodSandbox`
   * @param options `code` in place of the status's own
   */
  constructor(status: RpcStatus, doing: string, description: string, options: { cause?: unknown; code?: OpCode } = {}) {
    super(options.code ?? codes[status], doing, `rpc error: code = ${status} desc = ${description}`, options);
    this.grpcCode = rpcStatuses.indexOf(status);
    this.status = status;
    this.description = description;
  }

  /** The text that a Go client prints, and so what stands in events and conditions. */
  get goMessage(): string {
    return `rpc error: code = ${this.status} desc = ${this.description}`;
  }
}

/** The failure that gRPC's number stands for; numbers it does not have are Unknown. */
export function rpcError(grpcCode: number, doing: string, description: string, cause?: unknown): RpcError {
  return new RpcError(rpcStatuses[grpcCode] ?? 'Unknown', doing, description, cause === undefined ? {} : { cause });
}

/** The words for an event or a condition: Go's for a runtime's refusal, else the message. */
export function runtimeMessage(error: unknown): string {
  if (error instanceof RpcError) return error.goMessage;
  return error instanceof Error ? error.message : String(error);
}
