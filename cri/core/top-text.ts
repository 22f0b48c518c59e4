import type { Numbers } from './call-statistics.ts';
import { durationText } from './duration-text.ts';
import type { Paint } from './group-text.ts';
import { tableText } from './table.ts';

const MAX_CALLERS = 8;

/** Tables of what was counted: methods, who asks, callers. */
export function topText(numbers: Numbers, paint: Paint): string {
  const minutes = (numbers.toMs - numbers.fromMs) / 60_000;
  const methods = tableText(
    ['METHOD', 'CALLS', 'A MINUTE', 'P50', 'P99', 'MAX', 'ERRORS', 'WHO ASKS'],
    numbers.methods.map(({ method, calls, perMinute, p50Ms, p99Ms, maxMs, errors, askers }) => [
      ...[method, String(calls), String(perMinute), durationText(p50Ms), durationText(p99Ms), durationText(maxMs), String(errors)],
      askers.map(({ asker, calls: of }) => (askers.length === 1 ? asker : `${asker} ${of}`)).join(', '),
    ]),
  );
  const callers = tableText(
    ['CALLER', 'KIND', 'CALLS', 'A MINUTE', 'ERRORS', 'CALLS ITSELF'],
    numbers.callers
      .slice(0, MAX_CALLERS)
      .map(({ connection, kind, calls, perMinute, errors, caller }) => [
        `connection ${connection}`,
        kind,
        String(calls),
        String(perMinute),
        String(errors),
        caller,
      ]),
  );
  const more = numbers.callers.length - MAX_CALLERS + numbers.callersLeftOut;
  const asks = numbers.askers.map(({ asker, perMinute }) => `${asker} ${perMinute}`).join(', ');
  const head = `${numbers.calls} calls in ${durationText(minutes * 60_000)}${numbers.errors > 0 ? `, ${numbers.errors} errors` : ''}`;
  const [title = '', ...rest] = methods.split('\n');
  const [callersTitle = '', ...callersRest] = callers.split('\n');
  return [
    paint.strong(head),
    `a minute: ${asks}`,
    '',
    paint.faint(title),
    ...rest,
    paint.faint(callersTitle),
    ...callersRest.slice(0, -1),
    ...(more > 0 ? [`… ${more} more callers`] : []),
    '',
  ].join('\n');
}
