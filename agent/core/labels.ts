/** A label's or a taint's key: perhaps a domain and a slash, then a short name. */
export function isQualifiedName(key: string): boolean {
  const [name = '', domain, more] = key.split('/').toReversed();
  const isDomain = domain === undefined || (domain.length <= 253 && /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/.test(domain));
  return more === undefined && isDomain && name !== '' && isLabelValue(name);
}

/** A label's or a taint's value: short and plain, or nothing. */
export function isLabelValue(value: string): boolean {
  return value === '' || /^(?!.{64})[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/.test(value);
}
