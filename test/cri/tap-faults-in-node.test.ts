// The same once more without the program `sys`: the tap's own process passes bytes on then.
process.env['NODELET_SPLICE'] = 'node';
await import('./tap-faults.test.ts');
