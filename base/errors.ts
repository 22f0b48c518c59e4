/**
 * Stable codes of operating failures. Retry and exit status are decided by the code, never by message text.
 */
export type OpCode =
  | 'unavailable' // the other side is not there or went away; trying again can help
  | 'deadline' // it took longer than it was given
  | 'aborted' // the caller asked to stop
  | 'not-found'
  | 'exists'
  | 'conflict' // somebody else changed it meanwhile: read again
  | 'denied' // permission, authentication, read-only
  | 'invalid' // the input is wrong; trying again cannot help
  | 'exhausted' // disk, memory, addresses, descriptors, quota
  | 'unsupported' // this kernel, runtime or build cannot do it
  | 'failed'; // the outside refused for a reason of its own

/** An operating failure: what was being done, what failed, and what to do next. */
export class OpError extends Error {
  override readonly name = 'OpError';
  readonly code: OpCode;
  readonly doing: string;
  /** One sentence for a person: what to do next; empty when there is nothing to advise. */
  readonly advice: string;

  constructor(code: OpCode, doing: string, detail: string, options: { cause?: unknown; advice?: string } = {}) {
    super(`${doing}: ${detail}`, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.doing = doing;
    this.advice = options.advice ?? '';
  }
}

/** Whether trying the same thing again later can help. */
export function isRetriable(error: unknown): boolean {
  if (!(error instanceof OpError)) return false;
  return error.code === 'unavailable' || error.code === 'deadline' || error.code === 'conflict' || error.code === 'exhausted' || error.code === 'failed';
}

export function hasCode(error: unknown, code: OpCode): boolean {
  return error instanceof OpError && error.code === code;
}

/** The message of anything that was thrown, in one line. */
export function messageOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.replaceAll(/\s*\n\s*/g, ' ');
}
