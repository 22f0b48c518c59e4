import { writeFile } from 'node:fs/promises';
import { OpError } from '../../base/errors.ts';
import { printYaml } from '../../base/yaml.ts';

/** What --write-config-to asks for. */
export async function writeConfig(path: string, document: object): Promise<void> {
  await writeFile(path, await printYaml(document), { mode: 0o644 }).catch((cause: NodeJS.ErrnoException) => {
    throw new OpError('failed', 'write the configuration', `${path}: ${cause.code ?? cause.message}`, { cause });
  });
}
