import { open, rename, rm } from 'node:fs/promises';

/**
 * Writes a file in one step: after a crash of the process or the machine the old text is there or the new one, never
 * half of either. What lies at `${path}.new` is replaced, not followed. `mode` holds whatever the umask is.
 */
export async function replaceFile(path: string, text: string, mode = 0o600): Promise<void> {
  const fresh = `${path}.new`;
  await rm(fresh, { force: true });
  try {
    {
      await using file = await open(fresh, 'wx', mode);
      await file.chmod(mode);
      await file.writeFile(text);
      await file.sync();
    }
    await rename(fresh, path);
  } catch (error) {
    await rm(fresh, { force: true });
    throw error;
  }
}
