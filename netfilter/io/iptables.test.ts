import assert from 'node:assert/strict';
import { test } from 'node:test';
import { failedLines } from './iptables.ts';

/* What version 1.8.9 of both kinds says. */
const CASES: Record<string, [said: string, lines: number[]]> = {
  'the kernel refuses rules': [
    `iptables-nft-restore v1.8.9 (nf_tables):
line 9: RULE_APPEND failed (Invalid argument): rule in chain B3
line 10: RULE_APPEND failed (Invalid argument): rule in chain B3
`,
    [8, 9],
  ],
  'the kernel refuses a table': ['iptables-restore: line 12 failed\n', [11]],
  'the program lacks what a rule needs': [
    `iptables-restore v1.8.9 (legacy): Couldn't load match \`recent':No such file or directory

Error occurred at line: 4
Try \`iptables-restore -h' or 'iptables-restore --help' for more information.
`,
    [3],
  ],
  'the lock is held': ['Another app is currently holding the xtables lock; still 3s 0us time ahead to have a chance to grab the lock...\n', []],
};

for (const [name, [said, lines]] of Object.entries(CASES)) test(name, () => assert.deepEqual(failedLines(said), lines));
