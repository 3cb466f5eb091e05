'use strict';

// node client.js PACKAGE NAMESRV TOPIC GROUP COUNT: send so many messages and consume as many, then print what
// was answered and what came as one line of JSON. Whoever started this ends it if it takes too long.

const [pack, nameSrv, topic, group, count] = process.argv.slice(2);
const co = require('co'); // One of the packages speaks in generators, the other in promises: co takes both.
const { Consumer, Producer, Message } = require(pack);

const quiet = { debug() {}, info() {}, warn: console.error, error: console.error };
const options = { nameSrv, namesrvAddr: nameSrv, logger: quiet, httpclient: {}, accessKey: '', secretKey: '' };

async function main() {
  const received = [];
  const consumer = new Consumer({ ...options, consumerGroup: group });
  const producer = new Producer({ ...options, producerGroup: `${group}-producers` });
  consumer.on('error', console.error);
  producer.on('error', console.error);
  await new Promise(resolve => producer.ready(resolve));
  const sent = [];
  for (let number = 0; number < Number(count); number++) {
    const message = new Message(topic, 'TagA', `node ${number}`);
    message.keys = [ `key-${number}` ];
    const result = await co(function* () { return yield producer.send(message); });
    sent.push({ status: result.sendStatus, id: result.msgId });
  }
  await new Promise(resolve => {
    const take = message => {
      received.push({ body: message.body.toString(), id: message.msgId, tags: message.tags, keys: message.keys });
      if (received.length === Number(count)) resolve();
    };
    const listener = pack === 'rocketmq' ? function* (message) { take(message); } : async message => take(message);
    consumer.subscribe(topic, 'TagA || TagB', listener);
  });
  console.log(JSON.stringify({ sent, received }));
  process.exit(0);
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
