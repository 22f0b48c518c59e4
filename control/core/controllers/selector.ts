import type { LabelSelector } from '../../../proto/kube/types.ts';

export type Labels = Readonly<Record<string, string>>;

/** Whether `labels` have every pair of `wanted`; an empty map matches everything. */
export function mapMatches(wanted: Labels | undefined, labels: Labels | undefined): boolean {
  return Object.entries(wanted ?? {}).every(([key, value]) => labels?.[key] === value);
}

/** metav1.LabelSelector as the API defines it: absent matches nothing, empty matches everything. */
export function selectorMatches(selector: LabelSelector | undefined | null, labels: Labels | undefined): boolean {
  if (selector === undefined || selector === null) return false;
  if (!mapMatches(selector.matchLabels, labels)) return false;
  return (selector.matchExpressions ?? []).every((term) => {
    const value = labels?.[term.key];
    switch (term.operator) {
      case 'In':
        return value !== undefined && (term.values ?? []).includes(value);
      case 'NotIn':
        return value === undefined || !(term.values ?? []).includes(value);
      case 'Exists':
        return value !== undefined;
      case 'DoesNotExist':
        return value === undefined;
      default:
        return false;
    }
  });
}

export function selectorIsEmpty(selector: LabelSelector | undefined | null): boolean {
  return Object.keys(selector?.matchLabels ?? {}).length === 0 && (selector?.matchExpressions ?? []).length === 0;
}
