import { goDuration, tryDurationMs } from '../../base/duration.ts';

/**
 * One field of a configuration file: how it is read, and what it is when nobody says. Values keep the form that the
 * file has (durations stay Go's text), so that /configz prints them as upstream does.
 */
export interface Field<T> {
  readonly kind: string;
  /** Undefined in the answer: the value is wrong, and a problem was added. */
  read(value: unknown, path: string, problems: string[]): T | undefined;
  /** What stands for an absent value, and for zero where `zeroIsAbsent`. */
  fallback(): T;
  isAbsent(value: unknown): boolean;
}

export type Fields = Readonly<Record<string, Field<unknown>>>;
export type ValuesOf<F extends Fields> = { [K in keyof F]: F[K] extends Field<infer T> ? T : never };

type Read<T> = (value: unknown) => T | undefined;

function field<T>(kind: string, read: Read<T>, fallback: T, zero?: unknown): Field<T> {
  return {
    kind,
    read(value, path, problems) {
      const result = read(value);
      if (result === undefined) problems.push(`${path}: ${JSON.stringify(value)} is not ${kind}`);
      return result;
    },
    fallback: () => structuredCopy(fallback),
    isAbsent: (value) => value === undefined || value === null || (zero !== undefined && value === zero),
  };
}

function structuredCopy<T>(value: T): T {
  return (value !== null && typeof value === 'object' ? JSON.parse(JSON.stringify(value)) : value) as T;
}

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);
const asBool: Read<boolean> = (value) => (typeof value === 'boolean' ? value : undefined);
const asText: Read<string> = (value) => (typeof value === 'string' ? value : undefined);
const asInt: Read<number> = (value) => (typeof value === 'number' && Number.isSafeInteger(value) ? value : undefined);
const asDuration: Read<string> = (value) => {
  const ms = typeof value === 'string' ? tryDurationMs(value) : null;
  return ms === null ? undefined : goDuration(ms);
};

function listOf<T>(read: Read<T>): Read<T[]> {
  return (value) => {
    if (!Array.isArray(value)) return undefined;
    const items = value.map(read);
    return items.some((item) => item === undefined) ? undefined : (items as T[]);
  };
}

function mapOf<T>(read: Read<T>): Read<Record<string, T>> {
  return (value) => {
    if (!isRecord(value)) return undefined;
    const entries = Object.entries(value).map(([key, each]): [string, T | undefined] => [key, read(each)]);
    return entries.some(([, each]) => each === undefined) ? undefined : (Object.fromEntries(entries) as Record<string, T>);
  };
}

export const bool = (fallback: boolean): Field<boolean> => field('a boolean', asBool, fallback);
export const optionalBool = (): Field<boolean | null> => field<boolean | null>('a boolean', asBool, null);
export const text = (fallback = ''): Field<string> => field('a string', asText, fallback, '');
/** Empty text is a value of its own. */
export const plainText = (fallback: string): Field<string> => field('a string', asText, fallback);
/** 0 means the default, as in fields that are no pointers upstream. */
export const int = (fallback: number): Field<number> => field('an integer', asInt, fallback, 0);
/** 0 is a value of its own. */
export const plainInt = (fallback: number): Field<number> => field('an integer', asInt, fallback);
export const optionalInt = (): Field<number | null> => field<number | null>('an integer', asInt, null);
export const optionalFloat = (): Field<number | null> => field<number | null>('a number', (value) => (typeof value === 'number' ? value : undefined), null);
export const duration = (fallback: string): Field<string> => ({
  ...field('a duration such as 1m30s', asDuration, fallback),
  isAbsent: (value) => value === undefined || value === null || value === '0s' || value === '0',
});
export const plainDuration = (fallback: string): Field<string> => field('a duration such as 1m30s', asDuration, fallback);
export const optionalDuration = (): Field<string | null> => field<string | null>('a duration such as 1m30s', asDuration, null);
/** A number is nanoseconds. */
export const durationOrNs = (fallback: string): Field<string> => ({
  ...field('a duration such as 1m30s', (value) => (typeof value === 'number' && value >= 0 ? goDuration(value / 1e6) : asDuration(value)), fallback),
  isAbsent: (value) => value === undefined || value === null || value === 0 || value === '0s' || value === '0',
});
/** A number is taken as its text. */
export const quantityText = (fallback: string): Field<string> =>
  field('a quantity', (value) => (typeof value === 'number' ? String(value) : asText(value)), fallback, '');
export const texts = (fallback: string[] = []): Field<string[]> => field('a list of strings', listOf(asText), fallback);
export const ints = (): Field<number[]> => field<number[]>('a list of integers', listOf(asInt), []);
export const textMap = (): Field<Record<string, string>> => field<Record<string, string>>('a map of strings', mapOf(asText), {});
export const optionalTextMap = (): Field<Record<string, string> | null> => field<Record<string, string> | null>('a map of strings', mapOf(asText), null);
export const boolMap = (): Field<Record<string, boolean>> => field<Record<string, boolean>>('a map of booleans', mapOf(asBool), {});
export const textsMap = (): Field<Record<string, string[]>> => field<Record<string, string[]>>('a map of lists of strings', mapOf(listOf(asText)), {});
/** What is passed on as it is: parts that nothing here reads yet. */
export const record = (fallback: Record<string, unknown> | null = null): Field<Record<string, unknown> | null> =>
  field<Record<string, unknown> | null>('a map', (value) => (isRecord(value) ? value : undefined), fallback);

/** Fields under one name. */
export function group<F extends Fields>(fields: F): Field<ValuesOf<F>> {
  return {
    kind: 'a map',
    read: (value, path, problems) => readFields(fields, value, path, problems),
    fallback: () => readFields(fields, {}, '', []) as ValuesOf<F>,
    isAbsent: (value) => value === undefined || value === null,
  };
}

/** A list of maps. */
export function groups<F extends Fields>(fields: F): Field<ValuesOf<F>[]> {
  return {
    kind: 'a list of maps',
    read(value, path, problems) {
      if (!Array.isArray(value)) {
        problems.push(`${path}: ${JSON.stringify(value)} is not a list`);
        return undefined;
      }
      return value.map((each, index) => readFields(fields, each, `${path}[${index}]`, problems)).filter((each) => each !== undefined);
    },
    fallback: () => [],
    isAbsent: (value) => value === undefined || value === null,
  };
}

/** Reads a map strictly: every unknown field and every wrong value is a problem, each with its path. */
export function readFields<F extends Fields>(fields: F, value: unknown, path: string, problems: string[]): ValuesOf<F> | undefined {
  if (!isRecord(value)) {
    problems.push(`${path}: ${JSON.stringify(value)} is not a map`);
    return undefined;
  }
  const prefix = path === '' ? '' : `${path}.`;
  for (const key of Object.keys(value)) if (!(key in fields)) problems.push(`unknown field "${prefix}${key}"`);
  const out: Record<string, unknown> = {};
  for (const [key, each] of Object.entries(fields)) {
    out[key] = each.isAbsent(value[key]) ? each.fallback() : (each.read(value[key], `${prefix}${key}`, problems) ?? each.fallback());
  }
  return out as ValuesOf<F>;
}
