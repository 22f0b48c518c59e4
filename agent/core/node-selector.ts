import type { NodeSelectorTerm } from '../../proto/kube/types.ts';

type Requirement = NonNullable<NodeSelectorTerm['matchExpressions']>[number];

/** One term of a node affinity: all of its expressions and fields; an empty term matches nothing. */
export function matchesTerm(term: NodeSelectorTerm, labels: Readonly<Record<string, string>>, nodeName: string): boolean {
  const expressions = term.matchExpressions ?? [];
  const fields = term.matchFields ?? [];
  if (expressions.length + fields.length === 0) return false;
  return (
    expressions.every((each) => matchesRequirement(each, labels[each.key])) &&
    fields.every((each) => each.key === 'metadata.name' && matchesRequirement(each, nodeName))
  );
}

/** One requirement of a node or label selector; `undefined`: the object has no such label. An unknown operator matches nothing. */
export function matchesRequirement(requirement: Requirement, value: string | undefined): boolean {
  const values = requirement.values ?? [];
  switch (requirement.operator) {
    case 'In':
      return value !== undefined && values.includes(value);
    case 'NotIn':
      return value === undefined || !values.includes(value);
    case 'Exists':
      return value !== undefined;
    case 'DoesNotExist':
      return value === undefined;
    case 'Gt':
      return value !== undefined && whole(value) > whole(values[0] ?? '');
    case 'Lt':
      return value !== undefined && whole(value) < whole(values[0] ?? '');
    default:
      return false;
  }
}

function whole(text: string): number {
  return /^-?\d+$/.test(text) ? Number(text) : Number.NaN;
}
