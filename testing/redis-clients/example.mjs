// What users of node-redis do, said on standard output: node example.mjs PORT
import { createClient, ErrorReply } from 'redis';

const url = `redis://127.0.0.1:${process.argv[2]}`;
const say = (...words) => console.log(words.map((word) => JSON.stringify(word)).join(' '));

for (const RESP of [2, 3]) {
  const client = await createClient({ url, RESP }).connect();
  await client.flushAll();
  say('ping', await client.ping(), await client.set('key', 'value', { EX: 100 }), await client.get('key'), await client.get('nokey'));
  say('pipeline', await Promise.all([client.incr('counter'), client.incr('counter'), client.incr('counter')]));
  say('transaction', await client.multi().set('a', '1').incr('a').get('a').exec());
  await client.watch('a');
  await client.set('a', 'changed');
  try {
    say('watched', await client.multi().get('a').exec());
  } catch (error) {
    say('watched', error.constructor.name);
  }
  await client.hSet('hash', { a: '1', b: 'two' });
  say('hash', { ...(await client.hGetAll('hash')) }, await client.hIncrByFloat('hash', 'a', 0.5));
  await client.rPush('list', ['1', '2', '3']);
  say('list', await client.lRange('list', 0, -1), await client.blPop('list', 1));
  await client.sAdd('set', ['x', 'y']);
  say('set', [...(await client.sMembers('set'))].sort(), await client.sIsMember('set', 'x'));
  await client.zAdd('zset', [{ score: 1, value: 'one' }, { score: 2.5, value: 'two' }]);
  say('zset', await client.zRangeWithScores('zset', 0, -1), await client.zPopMin('zset'));
  const found = [];
  for await (const keys of client.scanIterator({ MATCH: '*set*' })) found.push(...keys);
  say('scan', found.sort());
  say('script', await client.eval("return {KEYS[1], ARGV[1], redis.call('GET', KEYS[1])}", { keys: ['key'], arguments: ['x'] }));
  await client.xAdd('stream', '1-1', { field: 'value' });
  await client.xGroupCreate('stream', 'group', '0');
  say('stream', await client.xReadGroup('group', 'alice', { key: 'stream', id: '>' }), await client.xAck('stream', 'group', '1-1'));
  await client.geoAdd('geo', { longitude: 13.361389, latitude: 38.115556, member: 'Palermo' });
  say('geo', await client.geoSearch('geo', { longitude: 15, latitude: 37 }, { radius: 200, unit: 'km' }));
  const listener = await client.duplicate().connect();
  const heard = new Promise((resolve) => listener.subscribe('channel', (message, channel) => resolve([channel, message])).then(() => client.publish('channel', 'text')));
  say('message', await heard);
  await listener.unsubscribe('channel');
  listener.destroy();
  for (const command of [['INCR', 'hash'], ['NOSUCH', 'a'], ['GET']]) {
    try {
      say('done', await client.sendCommand(command));
    } catch (error) {
      say('refused', error instanceof ErrorReply, error.message);
    }
  }
  say('config', { ...(await client.configGet('maxmemory')) }, await client.dbSize());
  client.destroy();
}
