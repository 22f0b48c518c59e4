type Fields = Readonly<Record<string, unknown>>;

function within(value: unknown, ...path: readonly string[]): unknown {
  let at: unknown = value;
  for (const name of path) at = (at as Fields | null | undefined)?.[name];
  return at;
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/** What a call is for, beyond its method and whom it is about: an image, a command, a time. Empty when there is nothing to say. */
export function callDetail(method: string, request: Fields): string {
  switch (method) {
    case 'RunPodSandbox':
      return text(request['runtimeHandler']);
    case 'CreateContainer':
      return text(within(request, 'config', 'image', 'userSpecifiedImage')) || text(within(request, 'config', 'image', 'image'));
    case 'PullImage':
    case 'ImageStatus':
    case 'RemoveImage':
      return text(within(request, 'image', 'image'));
    case 'ExecSync':
    case 'Exec':
      return ((request['cmd'] ?? []) as readonly string[]).join(' ');
    case 'StopContainer':
      return `within ${text(request['timeout']) || '0'} s`;
    default:
      return '';
  }
}
