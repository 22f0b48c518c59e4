import { thread } from './threads.ts';

await thread();
