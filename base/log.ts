import { OpError } from './errors.ts';

/** Structured log lines in klog's text form, so that what reads kubelet logs reads ours. */
export interface Log {
  /** `fields` are printed as key="value"; never pass secrets. */
  info(message: string, fields?: Record<string, unknown>): void;
  warn(message: string, fields?: Record<string, unknown>): void;
  error(message: string, fields?: Record<string, unknown>): void;
  /** Only printed at verbosity `level` or above (`--v`). */
  debug(level: number, message: string, fields?: Record<string, unknown>): void;
  /** A log whose lines carry `name` where klog prints the file. */
  child(name: string): Log;
}

export interface LogOptions {
  name: string;
  /** A function where it may change while the program runs. */
  verbosity: number | (() => number);
  nowMs: () => number;
  pid: number;
  write: (line: string) => void;
  /** `json`: as klog's zapr writes (`logging.format`). */
  format?: 'text' | 'json';
}

function text(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value);
  return JSON.stringify(value) ?? 'undefined';
}

/** Errors as their messages; what one advises stands behind it under its own name. */
function plain(fields: Record<string, unknown>): Record<string, unknown> {
  const told: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(fields)) {
    told[key] = value instanceof Error ? value.message : value;
    if (value instanceof OpError && value.advice !== '') told['advice'] ??= value.advice;
  }
  return told;
}

/** Milliseconds, the caller, the message, the fields; errors have no verbosity. */
function jsonLine(options: LogOptions, severity: string, message: string, fields: Record<string, unknown>): string {
  return JSON.stringify({ ts: options.nowMs(), caller: options.name, msg: message, ...(severity === 'E' ? {} : { v: 0 }), ...plain(fields) });
}

export function createLog(options: LogOptions): Log {
  const line = (severity: string, message: string, fields: Record<string, unknown> = {}): void => {
    if (options.format === 'json') return options.write(`${jsonLine(options, severity, message, fields)}\n`);
    const at = new Date(options.nowMs()).toISOString();
    const head = `${severity}${at.slice(5, 7)}${at.slice(8, 10)} ${at.slice(11, 23)}000 ${String(options.pid).padStart(7)} ${options.name}]`;
    const tail = Object.entries(plain(fields))
      .map(([key, value]) => ` ${key}=${text(value)}`)
      .join('');
    options.write(`${head} ${JSON.stringify(message)}${tail}\n`);
  };
  return {
    info: (message, fields) => line('I', message, fields),
    warn: (message, fields) => line('W', message, fields),
    error: (message, fields) => line('E', message, fields),
    debug: (level, message, fields) => {
      if (level <= (typeof options.verbosity === 'number' ? options.verbosity : options.verbosity())) line('I', message, fields);
    },
    child: (name) => createLog({ ...options, name }),
  };
}

/** A log that keeps nothing; for tests that do not look at it. */
export const silentLog: Log = { info() {}, warn() {}, error() {}, debug() {}, child: () => silentLog };
