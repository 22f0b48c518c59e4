/** A defect in this program. The process ends on it and starts again from re-read state. */
export class BugError extends Error {
  override readonly name = 'BugError';
}

/** Ends the run when an invariant of our own does not hold; never used for bad input or a failing outside. */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new BugError(message);
}

/** Marks a union as exhausted: the compiler refuses the call while a case is unhandled. */
export function unreachable(value: never): never {
  throw new BugError(`unhandled case ${JSON.stringify(value)}`);
}
