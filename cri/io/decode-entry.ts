import { decodeThread } from './decode-thread.ts';

decodeThread();
