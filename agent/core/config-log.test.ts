import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readYaml } from '../../base/yaml.ts';
import { configzOf, readConfiguration } from './config.ts';
import { configurationText } from './config-log.ts';

const fields = {
  apiVersion: 'kubelet.config.k8s.io/v1beta1',
  kind: 'KubeletConfiguration',
  eventBurst: 101,
  clusterDNS: ['10.96.0.10', 'fd00::a'],
  evictionHard: { 'memory.available': '5%' },
  nodeStatusUpdateFrequency: '7s',
  registerWithTaints: [{ key: 'a', value: 'yes', effect: 'NoSchedule' }],
  staticPodURL: 'http://127.0.0.1/pods',
  staticPodURLHeader: { authorization: ['Bearer secret'] },
};

test('the log has the configuration as YAML that reads back, by the words that readers of logs look for', async () => {
  const { config, problems } = readConfiguration(fields);
  assert.deepEqual(problems, []);
  const text = configurationText(config);
  assert.match(text, /^kind: KubeletConfiguration$/m);
  assert.match(text, /^eventBurst: 101$/m);
  assert.deepEqual(await readYaml(text, 'the text'), { ...configzOf(config), staticPodURLHeader: { authorization: ['<masked>'] } });
  assert.doesNotMatch(text, /secret/);
});
