import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ByteSink, LogFormatter, microsOf, parseLogLine, type LogFilter } from './log-lines.ts';

function format(lines: string[], filter: Partial<LogFilter> = {}): string {
  const formatter = new LogFormatter({ sinceMicros: null, timestamps: false, stream: 'All', ...filter });
  const out = new ByteSink(4);
  for (const line of lines) {
    const data = Buffer.from(`before${line}after`);
    formatter.format(data, 6, data.length - 5, out);
  }
  return Buffer.from(out.take()).toString();
}

test('whole lines get their newline, parts are joined', () => {
  assert.equal(
    format(['2016-10-06T00:17:09.669794202Z stdout P log 1', '2016-10-06T00:17:09.669794203Z stdout F  content', '2016-10-06T00:17:10Z stderr F x']),
    'log 1 content\nx\n',
  );
});

test('extra tags, empty texts and texts with blanks', () => {
  assert.equal(format(['2016-10-06T00:17:09Z stdout F:more a  b ', '2016-10-06T00:17:09Z stdout F ', '2016-10-06T00:17:09Z stdout F']), 'a  b \n\n\n');
});

test('what is not of the format is left out', () => {
  assert.equal(format(['nonsense', '', 'x stdout F a', '2016-10-06T00:17:09Z stdin F a', '2016-10-06T00:17:09Z stdout X a']), '');
});

test('timestamps stand before a line, not before each of its parts', () => {
  assert.equal(
    format(['2016-10-06T00:17:09.5Z stdout P a', '2016-10-06T00:17:09.6Z stdout F b', '2016-10-06T02:17:10+02:00 stdout F c'], { timestamps: true }),
    '2016-10-06T00:17:09.500000000Z ab\n2016-10-06T02:17:10.000000000+02:00 c\n',
  );
  assert.equal(
    format(['2016-10-06T00:17:09.669794202Z stdout F x', '2016-10-06T00:17:09Z stdout F y'], { timestamps: true }),
    '2016-10-06T00:17:09.669794202Z x\n2016-10-06T00:17:09.000000000Z y\n',
  );
});

test('since and stream choose entries', () => {
  const lines = ['2016-10-06T00:17:08.999Z stdout F a', '2016-10-06T00:17:09Z stdout F b', '2016-10-06T02:17:09.1+02:00 stderr F c'];
  assert.equal(format(lines, { sinceMicros: Date.UTC(2016, 9, 6, 0, 17, 9) * 1000 }), 'b\nc\n');
  assert.equal(format(lines, { stream: 'Stderr' }), 'c\n');
  assert.equal(format(lines, { stream: 'Stdout' }), 'a\nb\n');
});

test('times agree with Date', () => {
  for (const time of ['1970-01-01T00:00:00Z', '2000-02-29T23:59:59.123456Z', '2026-11-29T16:43:40Z', '2100-03-01T12:00:00-05:30', '1999-12-31T23:59:59.999Z']) {
    assert.equal(Math.floor(microsOf(time) / 1000), Date.parse(time), time);
  }
  assert.ok(Number.isNaN(microsOf('yesterday')));
});

test('single lines', () => {
  const read = (line: string): unknown => {
    const entry = parseLogLine(Buffer.from(line));
    return entry === null ? null : [entry.partial, Buffer.from(entry.text).toString()];
  };
  assert.deepEqual(read('2016-10-06T00:17:09Z stdout F some text'), [false, 'some text']);
  assert.deepEqual(read('2016-10-06T00:17:09Z stderr P some'), [true, 'some']);
  assert.deepEqual(read('2016-10-06T00:17:09Z stderr F '), [false, '']);
  assert.equal(read('nonsense'), null);
});
