import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freeSlot, idRange, idsPerPodProblem, mappingText, readSubIds, slotOf, userNamespaceOf, type IdRange } from './user-namespaces.ts';

const range: IdRange = { firstId: 65_536, idsPerPod: 65_536, slots: 3 };

test('which IDs of the machine are for pods', () => {
  assert.deepEqual(idRange(65_536, 110, null), { firstId: 65_536, idsPerPod: 65_536, slots: 65_535 });
  assert.deepEqual(idRange(65_536, 110, readSubIds('0: kubelet 65536 7208960\n')), { firstId: 65_536, idsPerPod: 65_536, slots: 110 });
  assert.equal(idRange(65_536, 111, readSubIds('0: kubelet 65536 7208960\n')), 'kubelet user assigned IDs are not enough to support 111 pods');
  assert.match(JSON.stringify(idRange(65_536, 1, { firstId: 0, count: 65_536 })), /must be greater or equal to 65536/);
  assert.match(JSON.stringify(idRange(65_536, 1, { firstId: 65_537, count: 65_536 })), /is not a multiple/);
  assert.deepEqual([readSubIds(''), readSubIds('0: kubelet 1 2\n1: kubelet 3 4\n')], [null, null]);
  assert.deepEqual([65_536, 131_072].map(idsPerPodProblem), [null, null]);
  for (const wrong of [1, 65_537, 2 ** 33, '65536', 1.5]) assert.match(idsPerPodProblem(wrong) ?? '', /userNamespaces.idsPerPod must/);
});

test('a free part is given, and read back from its file', () => {
  for (const from of [0, 1, 2]) assert.equal(freeSlot(range, new Set([0, 2]), from), 1);
  assert.equal(freeSlot(range, new Set(), 2), 2);
  assert.equal(freeSlot(range, new Set([2]), 2), 0);
  assert.equal(freeSlot(range, new Set([0, 1, 2]), 1), null);
  assert.equal(slotOf(range, mappingText(range, 2)), 2);
  assert.equal(
    mappingText(range, 0),
    '{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}',
  );
  assert.deepEqual(userNamespaceOf(range, 1).uids, [{ hostId: 131_072, containerId: 0, length: 65_536 }]);
});

test('a file that could hand over the machine is not believed', () => {
  const mapping = (hostId: number, containerId = 0, length = 65_536): object => ({ hostId, containerId, length });
  const file = (uid: object[], gid = uid): string => String(slotOf(range, JSON.stringify({ uidMappings: uid, gidMappings: gid })));
  assert.match(file([mapping(0)]), /none of this node's/);
  assert.match(file([mapping(65_536 * 4)]), /none of this node's/);
  assert.match(file([mapping(65_537)]), /none of this node's/);
  assert.match(file([mapping(65_536, 1)]), /does not begin with ID 0/);
  assert.match(file([mapping(65_536, 0, 131_072)]), /131072 IDs, and 65536 are configured/);
  assert.match(file([mapping(65_536)], [mapping(131_072)]), /different IDs/);
  assert.match(file([mapping(65_536), mapping(131_072)]), /not one mapping/);
  assert.equal(slotOf(range, 'x'), 'it is not JSON');
});
