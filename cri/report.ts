import { open } from 'node:fs/promises';
import { basename } from 'node:path';
import { messageOf, OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import { version } from '../base/version.ts';
import { pattern } from './core/expected.ts';
import { htmlOf } from './core/report-html.ts';
import { ReportMaker, summaryOf, type ReportFacts } from './core/report-facts.ts';
import { mermaidOf } from './core/report-mermaid.ts';
import { resourceSpansOf } from './core/report-otlp.ts';
import { traceEvents } from './core/report-perfetto.ts';
import { shown } from './core/shown.ts';
import { readPodCalls } from './io/pod-calls-read.ts';

export interface ReportOptions {
  readonly pod?: string;
  readonly html: boolean;
  readonly mermaid: boolean;
  readonly perfetto: boolean;
  readonly otlp: boolean;
  readonly json: boolean;
  readonly output?: string;
  /** Another file may stand there. */
  readonly force: boolean;
}

const FORMS = ['html', 'mermaid', 'perfetto', 'otlp', 'json'] as const;
/** Pieces are gathered to so much before they are written. */
const PIECE_LENGTH = 64 * 1024;
/** Names in a message. */
const MAX_NAMED = 8;

async function factsOf(host: Host, file: string, pod: string | undefined): Promise<ReportFacts> {
  const maker = new ReportMaker();
  const wanted = pod === undefined ? null : pattern(pod);
  const others = new Set<string>();
  let cutBytes = 0;
  for await (const call of readPodCalls(host, 'report', file, { entry: (entry) => maker.entry(entry), cut: (bytes) => (cutBytes = bytes) })) {
    if (wanted === null || (call.pod !== null && wanted.test(call.pod.key))) maker.call(call);
    else if (call.pod !== null) others.add(call.pod.key);
  }
  const facts = maker.facts(pod === undefined ? basename(file) : `${basename(file)}: ${pod}`, cutBytes);
  if (pod !== undefined && facts.pods.length === 0)
    throw new OpError('not-found', `report ${pod} of ${file}`, 'the recording has no such pod', { advice: `it has ${named([...others])}` });
  return facts;
}

function named(names: readonly string[]): string {
  return names.length === 0
    ? 'no pods'
    : names.slice(0, MAX_NAMED).map(shown).join(', ') + (names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : '');
}

function mermaid(facts: ReportFacts, fenced: boolean): string {
  const pods = facts.pods.filter(({ pod }) => pod !== null);
  const [pod] = pods;
  if (pod === undefined || pods.length > 1)
    throw new OpError('invalid', 'draw a sequence diagram', 'it shows one pod', {
      advice: `name it with --pod; the recording has ${named(pods.map((each) => each.pod?.key ?? ''))}`,
    });
  const text = mermaidOf(pod);
  return fenced ? `\`\`\`mermaid\n${text}\`\`\`\n` : text;
}

function* perfetto({ pods, firstMs, lastMs, recordings, name }: ReportFacts): Generator<string> {
  yield `{"displayTimeUnit":"ms","otherData":${JSON.stringify({ name, first: new Date(firstMs).toISOString(), recordings })},"traceEvents":[`;
  let first = true;
  for (const [at, pod] of pods.entries())
    for (const event of traceEvents(pod, at + 1, firstMs, lastMs)) {
      yield `${first ? '' : ','}\n${JSON.stringify(event)}`;
      first = false;
    }
  yield '\n]}\n';
}

function* otlp({ pods, lastMs, recordings }: ReportFacts): Generator<string> {
  yield '{"resourceSpans":[';
  const server = recordings[0]?.upstream ?? '';
  for (const [at, pod] of pods.entries()) yield `${at === 0 ? '' : ','}\n${JSON.stringify(resourceSpansOf(pod, lastMs, server, version))}`;
  yield '\n]}\n';
}

function piecesOf(form: (typeof FORMS)[number], facts: ReportFacts, output: string | undefined): Iterable<string> {
  switch (form) {
    case 'html':
      return htmlOf(facts);
    case 'mermaid':
      return [mermaid(facts, output?.endsWith('.md') === true)];
    case 'perfetto':
      return perfetto(facts);
    case 'otlp':
      return otlp(facts);
    case 'json':
      return [`${JSON.stringify(summaryOf(facts))}\n`];
  }
}

async function write(host: Host, pieces: Iterable<string>, { output, force }: ReportOptions): Promise<void> {
  let held = '';
  const send = async (to: (text: string) => unknown): Promise<void> => {
    for (const piece of pieces) {
      held += piece;
      if (held.length < PIECE_LENGTH) continue;
      await to(held);
      held = '';
      host.signal.throwIfAborted();
    }
    await to(held);
  };
  if (output === undefined) {
    await send(host.stdout);
    return;
  }
  try {
    // As a recording: what containers are started with is their owner's affair.
    await using file = await open(output, force ? 'w' : 'wx', 0o600);
    await send((text) => file.write(text));
  } catch (cause) {
    if (cause instanceof OpError) throw cause;
    if ((cause as NodeJS.ErrnoException).code === 'EEXIST')
      throw new OpError('exists', `write ${output}`, 'there is a file already', { cause, advice: 'name another one, or overwrite it with --force' });
    throw new OpError('failed', `write ${output}`, messageOf(cause), { cause, advice: 'the folder must be there and writable' });
  }
}

/** `nodelet cri report`: a recording as a page, a diagram, a trace or a summary. */
export async function report(host: Host, file: string, options: ReportOptions): Promise<number> {
  const forms = FORMS.filter((form) => options[form]);
  const [form = 'html'] = forms;
  if (forms.length !== 1)
    throw new OpError('invalid', 'choosing the report', forms.length === 0 ? 'no form is named' : `${forms.length} are named`, {
      advice: `name one of ${FORMS.map((each) => `--${each}`).join(', ')}`,
    });
  const facts = await factsOf(host, file, options.pod);
  await write(host, piecesOf(form, facts, options.output), options);
  return 0;
}
