/** An answer of the API server that is a Status with `status: Failure`. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  /** HTTP status code. */
  readonly code: number;
  /** metav1.StatusReason: NotFound, Conflict, AlreadyExists, Expired, TooManyRequests, Forbidden, Invalid, … */
  readonly reason: string;
  readonly details: Record<string, unknown>;
  /** From Retry-After, milliseconds; 0 when the server named none. */
  readonly retryAfterMs: number;

  constructor(code: number, reason: string, message: string, details: Record<string, unknown> = {}, retryAfterMs = 0) {
    super(message);
    this.code = code;
    this.reason = reason;
    this.details = details;
    this.retryAfterMs = retryAfterMs;
  }
}

export function isApiError(error: unknown, code: number): boolean {
  return error instanceof ApiError && error.code === code;
}
