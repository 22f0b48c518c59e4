import { OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import { fieldsOf } from './core/call-line.ts';
import { choosing, type Choice } from './core/choose-calls.ts';
import { durationText } from './core/duration-text.ts';
import { flatFields, isTextInBytes, type FlatField } from './core/flat-fields.ts';
import { COLOURS, PLAIN, type Paint } from './core/group-text.ts';
import { plainCall, type SeenCall } from './core/seen-calls.ts';
import { shown as printable } from './core/shown.ts';
import { seenInFile } from './io/seen-source.ts';

export interface GrepFlags extends Choice {
  readonly ignoreCase: boolean;
  /** Whole calls in place of the fields that match. */
  readonly full: boolean;
  readonly count: boolean;
  readonly json: boolean;
}

/** Longer fields are shown around what matches. */
const MAX_SHOWN = 200;

function textInBytes(path: string, text: string): string | null {
  return isTextInBytes(path) && text !== '(withheld)' ? Buffer.from(text, 'base64').toString() : null;
}

/** What a call says, each with where: `>` is the request's, `<` an answer's. */
function* said(call: SeenCall): Generator<FlatField> {
  for (const message of call.requests) for (const { path, text } of flatFields(fieldsOf(message), textInBytes)) yield { path: `> ${path}`, text };
  for (const message of call.responses) for (const { path, text } of flatFields(fieldsOf(message), textInBytes)) yield { path: `< ${path}`, text };
  if (call.hasFailed) yield { path: '! status', text: `${call.outcome}: ${call.message}` };
}

function around(text: string, pattern: RegExp, paint: Paint): string {
  const line = printable(text.replaceAll(/\s*\n\s*/g, ' ⏎ '));
  const found = pattern.exec(line);
  if (found === null) return line.slice(0, MAX_SHOWN);
  const from = line.length <= MAX_SHOWN ? 0 : Math.max(0, found.index - 60);
  const to = line.length <= MAX_SHOWN ? line.length : Math.min(line.length, from + MAX_SHOWN);
  const end = Math.min(to, found.index + found[0].length);
  return `${from > 0 ? '…' : ''}${line.slice(from, found.index)}${paint.failed(line.slice(found.index, end))}${line.slice(end, to)}${to < line.length ? '…' : ''}`;
}

/** `12:04:01.118  312 ms  RunPodSandbox  default/web  OK`. */
function headOf(call: SeenCall, file: string, paint: Paint): string {
  const time = call.kind === 'event' ? 'event' : call.endMs === null ? '–' : durationText(call.endMs - call.startMs);
  const subject = [call.pod, call.container].filter((part) => part !== '').join('/') || call.other;
  const words = [
    new Date(call.startMs).toISOString().slice(11, 23),
    time.padStart(8),
    paint.strong(call.method),
    subject,
    call.outcome === 'event' ? '' : call.outcome,
  ];
  return `${file}${words.filter((word) => word !== '').join('  ')}`;
}

function compiled(text: string, flags: GrepFlags): RegExp {
  try {
    return new RegExp(text, flags.ignoreCase ? 'iu' : 'u');
  } catch (cause) {
    throw new OpError('invalid', 'reading the pattern', (cause as Error).message, {
      cause,
      advice: 'it is a JavaScript regular expression; \\ makes a letter plain',
    });
  }
}

/** `nodelet cri grep`: calls with a field that matches. 0 when there were some, 1 when none, as grep has it. */
export async function grep(host: Host, text: string, files: readonly string[], flags: GrepFlags): Promise<number> {
  const pattern = compiled(text, flags);
  const wanted = choosing(flags);
  const paint = host.isTerminal ? COLOURS : PLAIN;
  let found = 0;
  for (const file of files) {
    let inFile = 0;
    const name = files.length > 1 ? `${file}: ` : '';
    for await (const call of seenInFile(file, host.signal)) {
      if (call.kind === 'note') {
        if (call.isLoss) host.stderr(`nodelet cri grep: ${call.text}\n`);
        continue;
      }
      if (!wanted(call)) continue;
      const all = [...said(call)];
      const matching = all.filter(({ path, text: value }) => pattern.test(value) || pattern.test(`${path.slice(2)}=${value}`));
      if (matching.length === 0) continue;
      inFile += 1;
      if (flags.count) continue;
      if (flags.json) {
        const whole = flags.full ? { requests: call.requests, responses: call.responses } : {};
        host.stdout(`${JSON.stringify({ ...(files.length > 1 ? { file } : {}), ...plainCall(call), found: matching, ...whole })}\n`);
        continue;
      }
      const shown = flags.full ? all : matching;
      host.stdout(
        `${headOf(call, name, paint)}\n${shown.map(({ path, text: value }) => `    ${printable(path)} = ${around(value, pattern, paint)}\n`).join('')}`,
      );
    }
    if (flags.count) host.stdout(flags.json ? `${JSON.stringify({ file, calls: inFile })}\n` : `${name}${inFile}\n`);
    found += inFile;
  }
  return found > 0 ? 0 : 1;
}
