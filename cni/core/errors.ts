/** What a plugin may answer in place of a result (CNI spec 1.1, section 5, "Error"). */

/** Well-known codes; 100 and above are this plugin's own. */
export const CODE = {
  incompatibleVersion: 1,
  unsupportedField: 2,
  unknownContainer: 3,
  invalidEnvironment: 4,
  io: 5,
  decode: 6,
  invalidConfig: 7,
  tryAgain: 11,
  notAvailable: 50,
  limited: 51,
  /** No address of a range is free. */
  exhausted: 100,
  /** A host port belongs to another pod. */
  portTaken: 101,
  /** CHECK: something is not as ADD left it. */
  differs: 102,
  /** The kernel refused. */
  kernel: 103,
} as const;

/** An answer that is no result: what the runtime shows to a person. */
export class CniError extends Error {
  override readonly name = 'CniError';
  readonly code: number;
  readonly details: string;

  constructor(code: number, message: string, details = '') {
    super(message);
    this.code = code;
    this.details = details;
  }
}

/** The error object for standard output. */
export function errorJson(error: CniError, cniVersion: string): Record<string, unknown> {
  return { cniVersion, code: error.code, msg: error.message, ...(error.details === '' ? {} : { details: error.details }) };
}
