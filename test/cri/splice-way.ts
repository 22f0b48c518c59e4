import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const built = process.env['NODELET_SYS'] ?? fileURLToPath(new URL('../../dist/sys', import.meta.url));

/** What passes bytes on in the tests of this process: the program `sys` where it is built, or, when a test file asked for it, Node. */
export const sys = process.env['NODELET_SPLICE'] === 'node' || !existsSync(built) ? undefined : built;
