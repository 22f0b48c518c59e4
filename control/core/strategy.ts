import type { View } from './authorize.ts';
import type { Cause } from './failure.ts';
import type { Obj } from './json.ts';
import type { NameRule } from './names.ts';

/** What a strategy may look at and draw from while it changes an object. */
export interface Surroundings {
  view: View;
  /** RFC 3339. */
  now: string;
  /** An integer in [0, below). */
  int(below: number): number;
  suffix(length: number): string;
  serviceCidr: string;
}

/** What is special about one kind. Everything not named here is done alike for all of them. */
export interface Strategy {
  nameRule: NameRule;
  /** `metadata.generation` counts changes of everything but metadata and status. */
  hasGeneration: boolean;
  /** Seconds a deleted object is given when nothing else says; absent for kinds that go at once. */
  graceSeconds?: number;
  /** PUT of an absent object makes it. */
  createOnUpdate?: boolean;
  /** PUT without a resourceVersion is refused. */
  needsVersion?: boolean;
  /** DELETE answers with the object, not with a Status. */
  returnsDeleted?: boolean;
  /** Fills in what was left out; called for every write after decoding. */
  defaults?(object: Obj): void;
  prepareCreate?(object: Obj, around: Surroundings): void;
  prepareUpdate?(object: Obj, old: Obj, around: Surroundings): void;
  /** `old` is there for an update. */
  validate?(object: Obj, old: Obj | undefined, around: Surroundings): Cause[];
  /** Before a status write is stored. */
  prepareStatus?(object: Obj, old: Obj): void;
  /** The labels of field selectors, beside metadata.name and metadata.namespace. */
  fields?(object: Obj): Record<string, string>;
}

/** The object without what the server and the status writers own; two equal ones have the same generation. */
export function specOf(object: Obj): Obj {
  const { metadata: _, status: __, ...rest } = object;
  return rest;
}
