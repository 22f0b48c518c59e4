import { join } from 'node:path';
import { goldenTests } from '../golden.ts';
import { makeAgentWorld } from './agent-world.ts';

await goldenTests(join(import.meta.dirname, '../../agent/testdata'), makeAgentWorld);
