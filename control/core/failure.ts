import type { Obj } from './json.ts';

export interface Cause {
  reason: string;
  message: string;
  field?: string;
}

/** A refusal that goes to the client as a Status. Expected: nothing is wrong with this program. */
export class Failure extends Error {
  override readonly name = 'Failure';
  readonly code: number;
  readonly reason: string;
  readonly details: Obj | undefined;

  constructor(code: number, reason: string, message: string, details?: Obj) {
    super(message);
    this.code = code;
    this.reason = reason;
    this.details = details;
  }

  /** The metav1.Status that is sent. */
  toStatus(): Obj {
    return {
      kind: 'Status',
      apiVersion: 'v1',
      metadata: {},
      status: 'Failure',
      message: this.message,
      reason: this.reason === '' ? undefined : this.reason,
      details: this.details,
      code: this.code,
    };
  }
}

/** What a message names a resource by: `pods`, `deployments.apps`. */
export function qualified(group: string, resource: string): string {
  return group === '' ? resource : `${resource}.${group}`;
}

export interface Subject {
  group: string;
  resource: string;
}

function detailsOf(of: Subject, name: string): Obj {
  return { name: name === '' ? undefined : name, group: of.group === '' ? undefined : of.group, kind: of.resource };
}

export const notFound = (of: Subject, name: string): Failure =>
  new Failure(404, 'NotFound', `${qualified(of.group, of.resource)} "${name}" not found`, detailsOf(of, name));

export const alreadyExists = (of: Subject, name: string): Failure =>
  new Failure(409, 'AlreadyExists', `${qualified(of.group, of.resource)} "${name}" already exists`, detailsOf(of, name));

export const conflict = (of: Subject, name: string, why: string): Failure =>
  new Failure(409, 'Conflict', `Operation cannot be fulfilled on ${qualified(of.group, of.resource)} "${name}": ${why}`, detailsOf(of, name));

export const staleWrite = (of: Subject, name: string): Failure =>
  conflict(of, name, 'the object has been modified; please apply your changes to the latest version and try again');

export const badRequest = (message: string): Failure => new Failure(400, 'BadRequest', message);

export const forbidden = (of: Subject, name: string, why: string): Failure => {
  const what =
    of.resource === ''
      ? 'forbidden'
      : name === ''
        ? `${qualified(of.group, of.resource)} is forbidden`
        : `${qualified(of.group, of.resource)} "${name}" is forbidden`;
  return new Failure(403, 'Forbidden', `${what}: ${why}`, detailsOf(of, name));
};

export const methodNotAllowed = (of: Subject): Failure =>
  new Failure(405, 'MethodNotAllowed', 'the server does not allow this method on the requested resource', detailsOf(of, ''));

export const notAcceptable = (types: string): Failure => new Failure(406, 'NotAcceptable', `only the following media types are accepted: ${types}`);

export const unsupportedMedia = (types: readonly string[]): Failure =>
  new Failure(415, 'UnsupportedMediaType', `the body of the request was in an unknown format - accepted media types include: ${types.join(', ')}`);

export const expired = (message: string): Failure => new Failure(410, 'Expired', message);

export const tooLargeVersion = (asked: number, current: number): Failure =>
  new Failure(504, 'Timeout', `Timeout: Too large resource version: ${asked}, current: ${current}`, {
    retryAfterSeconds: 1,
    causes: [{ reason: 'ResourceVersionTooLarge', message: 'Too large resource version' }],
  });

export const tooManyRequests = (message: string, retryAfterSeconds: number): Failure => new Failure(429, 'TooManyRequests', message, { retryAfterSeconds });

export const unauthorized = (): Failure => new Failure(401, 'Unauthorized', 'Unauthorized');

export const internal = (message: string): Failure =>
  new Failure(500, 'InternalError', `Internal error occurred: ${message}`, { causes: [{ reason: '', message }] });

export const noSuchPath = (): Failure => new Failure(404, 'NotFound', 'the server could not find the requested resource', {});

/** 422 with one cause for each field, in the words clients print. */
export function invalid(group: string, kind: string, name: string, causes: readonly Cause[]): Failure {
  const lines = causes.map((cause) => (cause.field === undefined || cause.field === '' ? cause.message : `${cause.field}: ${cause.message}`));
  const unique = [...new Set(lines)];
  const list = unique.length === 1 ? unique[0] : `[${unique.join(', ')}]`;
  return new Failure(422, 'Invalid', `${qualified(group, kind)} "${name}" is invalid: ${list}`, {
    name: name === '' ? undefined : name,
    group: group === '' ? undefined : group,
    kind,
    causes: causes.map((cause) => ({ reason: cause.reason, message: cause.message, field: cause.field })),
  });
}
