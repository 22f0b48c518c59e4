import type { DiffOptions } from '../diff.ts';
import type { Commands } from './command.ts';

function several(value: string, before: readonly string[]): string[] {
  return [...before, value];
}

export function diffCommand({ host, add, done }: Commands): void {
  add('diff <a> <b>', 'two recordings side by side: calls that one kubelet makes and the other does not, fields, order, times', [
    './nodelet cri diff kubelet-1.36.crirec kubelet-1.37.crirec',
    './nodelet cri diff a.crirec b.crirec --pod default/web --all',
    './nodelet cri diff a.crirec b.crirec --map default/web=test/web-1 --ignore "config.annotations*"',
    './nodelet cri diff a.crirec b.crirec --expect known.yaml --update     then give each its reason',
    './nodelet cri diff a.crirec b.crirec --expect known.yaml              ends with 1 on anything else',
  ])
    .option('--pod <namespace/name>', 'only that pod; * stands for any text, (node) for calls about no pod')
    .option('--method <method>', 'only calls of that method')
    .option('--all', 'what differs by nature too (ids, times, uids, addresses), and what is expected', false)
    .option('--ignore <path>', 'leave these fields or calls out; * stands for any text; may be given again', several, [])
    .option('--map <a=b>', 'which pod of A has its place in which of B; may be given again', several, [])
    .option('--expect <file>', 'differences that may be, each with its reason; any other, or one that is no more, ends with 1')
    .option('--update', 'write that file: reasons are kept', false)
    .option('--reason <text>', 'the reason of what --update adds')
    .action(async (a: string, b: string, flags: DiffOptions) => done(await (await import('../diff.ts')).diff(host, a, b, flags)));
}
