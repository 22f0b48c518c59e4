import assert from 'node:assert/strict';
import { test } from 'node:test';
import { flagzText, HealthPage, statuszText } from './component-pages.ts';

test('/healthz in upstream’s words', () => {
  const checks = [
    { name: 'ping', trouble: null },
    { name: 'syncloop', trouble: 'pleg was last seen active 4m ago' },
  ];
  const page = new HealthPage();
  const ask = (query: string, of = checks): object => page.answer(of, new URLSearchParams(query));
  assert.deepEqual(ask('', [{ name: 'ping', trouble: null }]), { status: 200, text: 'ok' });
  assert.deepEqual(ask('verbose', [{ name: 'ping', trouble: null }]), { status: 200, text: '[+]ping ok\nhealthz check passed\n' });
  assert.deepEqual(ask(''), { status: 500, text: '[+]ping ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n' });
  assert.deepEqual(ask('verbose&exclude=syncloop&exclude=x'), {
    status: 200,
    text: '[+]ping ok\n[+]syncloop excluded: ok\nwarn: some health checks cannot be excluded: no matches for "x"\nhealthz check passed\n',
  });
  const counted = page.text();
  assert.match(counted, /^kubernetes_healthchecks_total\{name="ping",status="success",type="healthz"\} 4$/m);
  assert.match(counted, /^kubernetes_healthcheck\{name="syncloop",type="healthz"\} 0$/m);
  assert.match(counted, /^kubernetes_healthchecks_total\{name="syncloop",status="error",type="healthz"\} 1$/m, 'one that is left out is not counted');
  page.reset();
  assert.equal(page.text(), '');
});

test('z-pages as text', () => {
  const facts = { component: 'kubelet', startedMs: Date.UTC(2026, 11, 1, 8, 3, 48), engine: 'node v24', version: 'v1.37.2+x', paths: ['/a', '/b'] } as const;
  const text = statuszText({ ...facts, nowMs: facts.startedMs + 3_661_000 });
  assert.match(text, /^\nkubelet statusz\nWarning: .*purposes only\.\n\nStarted: /);
  assert.deepEqual(text.split('\n').slice(4), [
    'Started: Tue Dec  1 08:03:48 UTC 2026',
    'Up: 1 hr 01 min 01 sec',
    'Go version: node v24',
    'Binary version: 1.37.2+x',
    'Emulation version: 1.37',
    'Paths: /a /b',
    '',
  ]);
  assert.match(flagzText('kube-proxy', { v: '2', a: 'x' }), /^\nkube-proxy flagz\n.*purposes only\.\na=x\nv=2\n$/s);
});
