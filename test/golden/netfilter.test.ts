import { join } from 'node:path';
import { goldenTests } from '../golden.ts';
import { makeWorld } from './netfilter-world.ts';

await goldenTests(join(import.meta.dirname, '../../netfilter/testdata'), makeWorld);
