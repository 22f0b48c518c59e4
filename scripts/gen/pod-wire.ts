import type { Property, Schema } from '../../proto/kube/schema-types.ts';

/** Types of the API with a protobuf form that is not their fields'. */
const special: Readonly<Record<string, string>> = { Time: 't', MicroTime: 'm', Quantity: 'q', IntOrString: 'o', FieldsV1: 'r' };

/**
 * How a Pod is written as protobuf: one text per message, `1metadata:ObjectMeta,11labels:{s,…`. After the colon stands
 * what it is: s text, i whole number, b boolean, y bytes, t and m times, q quantity, o number or text, r raw JSON, else a
 * message; `[` before it is a list, `{` a map from text. `2^:X` is a message whose fields stand in the outer object.
 */
export function buildPodWire(schema: Schema, wire: Readonly<Record<string, string>>): Record<string, string> {
  const out: Record<string, string> = {};
  const codeOf = (property: Property | undefined): string => {
    if (property?.ref !== undefined) {
      const short = special[property.ref];
      if (short !== undefined) return short;
      const target = schema.definitions[property.ref];
      if (target?.properties === undefined && target?.type === 'string') return 's';
      add(property.ref);
      return property.ref;
    }
    switch (property?.type) {
      case 'array':
        return `[${codeOf(property.items)}`;
      case 'object':
        return `{${codeOf(property.additionalProperties)}`;
      case 'integer':
        return 'i';
      case 'boolean':
        return 'b';
      default:
        return property?.format === 'byte' ? 'y' : 's';
    }
  };
  const fieldsOf = (text: string, properties: Readonly<Record<string, Property>>, outer: string): string =>
    text
      .split(',')
      .flatMap((item) => {
        const [, number = '', inline, name = ''] = /^(\d+)(\^?)(.*?)\*?$/.exec(item) ?? [];
        if (inline === '') return properties[name] === undefined ? [] : [`${number}${name}:${codeOf(properties[name])}`];
        const inner = wire[name];
        if (inner === undefined) throw new Error(`no fields of ${name} in ${outer}`);
        out[`${outer}.${number}`] = fieldsOf(inner, properties, `${outer}.${number}`);
        return [`${number}^:${outer}.${number}`];
      })
      .join(',');
  const add = (name: string): void => {
    if (out[name] !== undefined) return;
    const text = wire[name];
    out[name] = '';
    if (text !== undefined) out[name] = fieldsOf(text, schema.definitions[name]?.properties ?? {}, name);
  };
  add('Pod');
  return out;
}
