import { OpError } from '../../base/errors.ts';

/** `unix:///run/x.sock` or a path → a path. Throws OpError `invalid`. */
export function socketPath(text: string): string {
  const path = text.startsWith('unix:') ? text.slice('unix:'.length).replace(/^\/\/(?=\/)/, '') : text;
  if (!path.startsWith('/'))
    throw new OpError('invalid', 'reading a socket', `"${text}" is not a unix socket`, { advice: 'write unix:///run/containerd/containerd.sock' });
  return path;
}
