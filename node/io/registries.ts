import { connect } from 'node:net';

/** Whether anything answers at a registry's HTTPS port. Asked once per host, for at most `timeoutMs`. */
export async function registryAnswers(host: string, timeoutMs: number): Promise<boolean> {
  const [name = '', port = '443'] = (host === 'docker.io' ? 'registry-1.docker.io' : host).split(':');
  return new Promise((resolve) => {
    const socket = connect({ host: name, port: Number(port) });
    const finish = (answer: boolean): void => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(timeoutMs, () => finish(false));
    socket.once('connect', () => finish(true));
    socket.once('error', () => finish(false));
  });
}
