/**
 * Scripts with golden answers. A script is a text file: prose that says what it proves, then commands and what they
 * answered. A command starts with `> `; lines that start with `| ` below it are its input; what follows up to the next
 * command is the answer. Everything before the first command is prose, and so is a line that starts with `# `.
 * UPDATE_GOLDEN=1 writes the answers anew: the diff is the review.
 */
import assert from 'node:assert/strict';
import { readFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';

export interface GoldenWorld extends AsyncDisposable {
  /** The answer, of any number of lines; '' is none. */
  command(words: readonly string[], input: string): Promise<string>;
}

interface Entry {
  /** Prose and blank lines before the command. */
  readonly before: string;
  readonly line: string;
  readonly input: readonly string[];
  answer: string;
}

/** One test for each script of a folder. */
export async function goldenTests(dir: string, makeWorld: () => Promise<GoldenWorld>): Promise<void> {
  const names = (await readdir(dir)).filter((name) => name.endsWith('.txt')).toSorted();
  for (const name of names) {
    test(name.replace(/\.txt$/, '').replaceAll('-', ' '), async () => {
      const path = join(dir, name);
      const text = await readFile(path, 'utf8');
      const answered = await runScript(text, makeWorld);
      if (process.env['UPDATE_GOLDEN'] === '1') {
        if (answered !== text) await writeFile(path, answered);
        return;
      }
      assert.equal(answered, text);
    });
  }
}

/** Runs a script and gives it back with the answers of now. */
export async function runScript(text: string, makeWorld: () => Promise<GoldenWorld>): Promise<string> {
  const { entries, after } = parse(text);
  await using world = await makeWorld();
  for (const entry of entries) entry.answer = (await world.command(split(entry.line), entry.input.join('\n'))).trimEnd();
  return entries.map(format).join('') + after;
}

function parse(text: string): { entries: Entry[]; after: string } {
  const entries: Entry[] = [];
  let before: string[] = [];
  const lines = text.split('\n');
  for (let index = 0; index < lines.length;) {
    const line = lines[index]!;
    if (!line.startsWith('> ')) {
      before.push(line);
      index += 1;
      continue;
    }
    index += 1;
    const input: string[] = [];
    while (lines[index]?.startsWith('| ') === true || lines[index] === '|') input.push(lines[index++]!.slice(2));
    // An answer ends at a blank line, the next command or prose.
    while (index < lines.length && lines[index] !== '' && !lines[index]!.startsWith('> ') && !lines[index]!.startsWith('# ')) index += 1;
    entries.push({ before: before.map((each) => `${each}\n`).join(''), line: line.slice(2), input, answer: '' });
    before = [];
  }
  return { entries, after: before.join('\n') };
}

function format(entry: Entry): string {
  const input = entry.input.map((line) => `| ${line}`.trimEnd() + '\n').join('');
  return `${entry.before}> ${entry.line}\n${input}${entry.answer === '' ? '' : `${entry.answer}\n`}`;
}

/** Words, with quotes around those that have blanks. */
function split(line: string): string[] {
  return [...line.matchAll(/"([^"]*)"|(\S+)/g)].map((match) => match[1] ?? match[2]!);
}
