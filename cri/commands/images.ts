import type { Commands } from './command.ts';
import type { ImagesFlags } from './list-run.ts';
import { withRuntime } from './runtime-options.ts';

export function imagesCommand({ host, add, done }: Commands): void {
  withRuntime(
    add('images [image]', 'the runtime’s images, or those of a name or id', [
      'sudo ./nodelet cri images',
      'sudo ./nodelet cri images busybox',
      'sudo ./nodelet cri images --digests --no-trunc',
    ]),
  )
    .option('--digests', 'show digests too', false)
    .option('-q, --quiet', 'only ids', false)
    .option('--no-trunc', 'whole ids')
    .action(async (image: string | undefined, flags: ImagesFlags) => done(await (await import('./list-run.ts')).images(host, image, flags)));
}
