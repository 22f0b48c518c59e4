import resourcesJson from './resources.json' with { type: 'json' };
import schemaJson from './schema.json' with { type: 'json' };
import type { ResourceInfo, Schema } from './schema-types.ts';

/** The compact schema of Kubernetes' built-in types. */
export const schema: Schema = schemaJson as unknown as Schema;
/** What discovery says of the built-in resources. */
export const resources: readonly ResourceInfo[] = resourcesJson as unknown as ResourceInfo[];
