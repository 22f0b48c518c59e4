import { access, constants, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { Command, CommanderError, Option } from 'commander';
import { OpError } from '../base/errors.ts';
import { failure, hostOf } from '../base/process.ts';
import type { Host } from '../base/host.ts';
import { createProgress, type Progress } from '../node/mod.ts';

export interface Program {
  readonly host: Host;
  readonly command: Command;
  /** Progress on standard error; quiet nowhere, because everything here takes more than a second. */
  readonly progress: Progress;
  /** Adds a subcommand whose action resolves to the exit status; `isDefault` is what runs when none is named, and `jsonFile` lets `--json` name a file. Every one has `--json` and examples in its help. */
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- commander knows no types: the caller says what its options are
  add<Options>(
    name: string,
    summary: string,
    examples: readonly string[],
    run: (options: Options, args: readonly string[]) => Promise<number>,
    choice?: { readonly isDefault?: boolean; readonly jsonFile?: boolean },
  ): Command;
  /** JSON when `json` is set, else the lines. */
  answer(json: boolean, data: unknown, lines: readonly string[]): void;
}

const examplesText = (examples: readonly string[]): string => `\nExamples:\n${examples.map((line) => `  ${line}`).join('\n')}`;

/**
 * Runs one of the programs behind `nodelet assets|cluster|…`: `build` adds its commands. A wrong command line exits with 2,
 * an operating failure prints one message and exits with 1 or 2, a defect with 70.
 */
export async function runProgram(name: string, summary: string, build: (program: Program) => void): Promise<void> {
  const host = hostOf(process.argv.slice(2));
  let code = 0;
  /** One example of each command, for the help of all. */
  const firsts: string[] = [];
  const command = new Command(`nodelet ${name}`)
    .description(summary)
    .exitOverride()
    .enablePositionalOptions()
    .configureOutput({ writeOut: host.stdout, writeErr: host.stderr });
  const program: Program = {
    host,
    command,
    progress: createProgress(host, { quiet: false, terminal: host.isTerminal }),
    // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- as above
    add<Options>(
      usage: string,
      words: string,
      examples: readonly string[],
      run: (options: Options, args: readonly string[]) => Promise<number>,
      choice: { readonly isDefault?: boolean; readonly jsonFile?: boolean } = {},
    ) {
      const isDefault = choice.isDefault ?? false;
      firsts.push(...examples.slice(0, 1));
      const made = command
        .command(usage, { isDefault })
        .description(isDefault ? `${words}; meant when no command is named` : words)
        .addOption(
          (choice.jsonFile === true
            ? new Option('--json [file]', 'print the answer as JSON, or write it to a file')
            : new Option('--json', 'print the answer as JSON')
          ).default(false),
        )
        .addHelpText('after', examplesText(examples));
      made.action(async (...all: unknown[]) => {
        const itself = all.at(-1) as Command;
        code = await run(itself.optsWithGlobals() as Options, itself.args);
      });
      return made;
    },
    answer(json, data, lines) {
      host.stdout(json ? `${JSON.stringify(data, null, 2)}\n` : lines.map((line) => `${line}\n`).join(''));
    },
  };
  build(program);
  command.addHelpText('after', examplesText(firsts));
  try {
    await command.parseAsync([...host.args], { from: 'user' });
    process.exitCode = code;
  } catch (error) {
    process.exitCode = error instanceof CommanderError ? (error.exitCode === 0 ? 0 : 2) : failure(host, error);
  }
}

/** Refuses a file that could not be written in the end, before the work that it is for begins: OpError `invalid`. */
export async function requireWritable(flag: string, path: string | undefined): Promise<void> {
  if (path === undefined) return;
  const there = await stat(path).catch(() => null);
  if (there?.isDirectory() === true) throw new OpError('invalid', `reading ${flag}`, `${path} is a folder`);
  const folder = dirname(resolve(path));
  await access(there === null ? folder : path, constants.W_OK).catch((cause: unknown) => {
    throw new OpError('invalid', `reading ${flag}`, `no file can be written in ${folder}`, { cause });
  });
}
