import { flagTexts } from '../../base/component-pages.ts';
import { flags } from './config-flags.ts';

/** Every flag with the value that counts, for /flagz: the configuration's where a flag stands for a field, else as given. */
export function flagzOf(config: object, given: ReadonlyMap<string, unknown>): Record<string, string> {
  return flagTexts(
    Object.entries(flags).map(([name, { field }]) => [name, field] as const),
    config,
    given,
  );
}
