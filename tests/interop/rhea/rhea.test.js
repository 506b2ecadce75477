// rhea against the broker at INTEROP_BROKER (host:port). One test is one promise of the broker.
'use strict';

const assert = require('node:assert/strict');
const { randomUUID } = require('node:crypto');
const { once } = require('node:events');
const { afterEach, beforeEach, test } = require('node:test');
const rhea = require('rhea');

const [host, port] = process.env.INTEROP_BROKER.split(':');
const PATIENCE_MS = 10_000; // For what must happen; a loaded machine is slow.
const NOTHING_MS = 100; // For what must not happen.

let connections;
let connection;
let address;

beforeEach(async () => {
    connections = [];
    connection = await connect();
    address = `rhea-${randomUUID()}`;
});

afterEach(async () => {
    for (const one of connections) {
        if (one.is_open()) {
            one.close();
            await event(one, 'connection_close');
        }
    }
});

/** Resolves with the context of the next event `name` of `emitter`. */
async function event(emitter, name) {
    const patience = new AbortController();
    const timer = setTimeout(() => patience.abort(`no ${name}`), PATIENCE_MS);
    try {
        const [context] = await once(emitter, name, { signal: patience.signal });
        return context;
    } catch (error) {
        throw new Error(`waited for ${name}`, { cause: error });
    } finally {
        clearTimeout(timer);
    }
}

async function connect(options = {}) {
    const one = rhea.create_container().connect({ host, port, username: 'anonymous', reconnect: false, ...options });
    connections.push(one);
    await event(one, 'connection_open');
    return one;
}

/** Cuts the connection without a Close. rhea notices an error, but not a socket that is merely closed. */
function lose(one) {
    one.socket.destroy(new Error('cut on purpose'));
}

async function openSender(options = {}, on = connection) {
    const sender = on.open_sender({ target: address, ...options });
    if (!sender.sendable()) {
        await event(sender, 'sendable');
    }
    return sender;
}

/** A receiver with a list of what arrived, and `next()`, which waits for one more. Credit by hand unless told. */
async function openReceiver(options = {}, on = connection) {
    const receiver = on.open_receiver({ source: address, credit_window: 0, autoaccept: false, ...options });
    receiver.arrived = [];
    receiver.on('message', (context) => receiver.arrived.push(context));
    receiver.next = async () => {
        if (receiver.arrived.length === 0) {
            await event(receiver, 'message');
        }
        return receiver.arrived.shift();
    };
    receiver.take = async () => {
        receiver.add_credit(1);
        return receiver.next();
    };
    await event(receiver, 'receiver_open');
    return receiver;
}

/** Sends each body in its own message and waits until the broker has answered for all. */
async function send(...bodies) {
    const sender = await openSender();
    let answered = 0;
    sender.on('accepted', () => {
        answered += 1;
        if (answered === bodies.length) {
            sender.emit('all_accepted');
        }
    });
    const all = event(sender, 'all_accepted');
    for (const body of bodies) {
        sender.send({ body });
    }
    await all;
    sender.close();
}

async function nothingArrives(receiver) {
    await new Promise((resolve) => { setTimeout(resolve, NOTHING_MS); });
    assert.equal(receiver.arrived.length, 0);
}

/** What a receiver that was not there before finds in the queue. */
async function left() {
    const receiver = await openReceiver({ autoaccept: true });
    receiver.add_credit(100);
    receiver.drain_credit();
    await event(receiver, 'receiver_drained');
    receiver.close();
    return receiver.arrived.map(({ message }) => message.body);
}

test('messages arrive in the order they were sent', async () => {
    const bodies = Array.from({ length: 500 }, (_, n) => n);
    await send(...bodies);
    const receiver = await openReceiver({ autoaccept: true, credit_window: 10 });
    for (const body of bodies) {
        assert.equal((await receiver.next()).message.body, body);
    }
});

test('a settled message is kept without an answer', async () => {
    const sender = await openSender({ snd_settle_mode: 1 });
    assert.equal(sender.remote.attach.snd_settle_mode, 1);
    sender.on('accepted', () => assert.fail('answered'));
    sender.send({ body: 'settled' });
    const receiver = await openReceiver();
    assert.equal((await receiver.take()).message.body, 'settled');
});

test('a receiver that asks for settled messages gets them settled', async () => {
    await send('a');
    const receiver = await openReceiver({ snd_settle_mode: 1 });
    assert.equal(receiver.remote.attach.snd_settle_mode, 1);
    assert.equal((await receiver.take()).delivery.remote_settled, true);
    receiver.close();
    assert.deepEqual(await left(), []);
});

test('a sender in receiver-settle-mode second settles after the broker has answered', async () => {
    const sender = await openSender({ rcv_settle_mode: 1, autosettle: false });
    assert.equal(sender.remote.attach.rcv_settle_mode, 1);
    sender.send({ body: 'a' });
    const { delivery } = await event(sender, 'accepted');
    assert.equal(delivery.remote_settled, false);
    delivery.update(true);
    assert.deepEqual(await left(), ['a']);
});

test('released goes back to its place and does not count', async () => {
    await send('a', 'b');
    const receiver = await openReceiver();
    (await receiver.take()).delivery.release();
    const again = await receiver.take();
    assert.equal(again.message.body, 'a');
    assert.ok(!again.message.delivery_count);
    again.delivery.release();
    receiver.close();
    assert.deepEqual(await left(), ['a', 'b']);
});

test('modified with delivery-failed counts', async () => {
    await send('a');
    const receiver = await openReceiver();
    (await receiver.take()).delivery.modified({ delivery_failed: true });
    const again = await receiver.take();
    assert.equal(again.message.delivery_count, 1);
    again.delivery.accept();
    receiver.close();
    assert.deepEqual(await left(), []);
});

test('undeliverable-here goes to another receiver', async () => {
    await send('a');
    const first = await openReceiver();
    (await first.take()).delivery.modified({ delivery_failed: true, undeliverable_here: true });
    first.add_credit(1);
    await nothingArrives(first);
    const second = await openReceiver();
    assert.equal((await second.take()).message.body, 'a');
});

test('rejected does not come back', async () => {
    await send('a', 'b');
    const receiver = await openReceiver();
    (await receiver.take()).delivery.reject({ condition: 'amqp:decode-error', description: 'on purpose' });
    const { message, delivery } = await receiver.take();
    assert.equal(message.body, 'b');
    delivery.accept();
    receiver.close();
    assert.deepEqual(await left(), []);
});

test('no more than the credit arrives', async () => {
    await send('a', 'b', 'c');
    const receiver = await openReceiver();
    await nothingArrives(receiver);
    receiver.add_credit(2);
    await receiver.next();
    await receiver.next();
    await nothingArrives(receiver);
    receiver.add_credit(1);
    assert.equal((await receiver.next()).message.body, 'c');
});

test('drain gives what there is, then takes the credit back', async () => {
    await send('a', 'b');
    const receiver = await openReceiver();
    receiver.add_credit(10);
    receiver.drain_credit();
    await event(receiver, 'receiver_drained');
    assert.deepEqual(receiver.arrived.map(({ message }) => message.body), ['a', 'b']);
    assert.equal(receiver.credit, 0);
});

test('draining an empty queue is answered each time', async () => {
    const receiver = await openReceiver();
    for (let n = 0; n < 3; n += 1) {
        receiver.add_credit(5);
        receiver.drain_credit();
        await event(receiver, 'receiver_drained');
        assert.equal(receiver.credit, 0);
    }
    receiver.drain = false;
    await send('a');
    assert.equal((await receiver.take()).message.body, 'a');
});

test('a reply comes through a dynamic queue', async () => {
    const server = await connect();
    const requests = await openReceiver({ autoaccept: true, credit_window: 10 }, server);
    const replies = await openSender({ target: {} }, server);
    requests.on('message', ({ message }) => {
        replies.send({ to: message.reply_to, correlation_id: message.message_id, body: message.body.toUpperCase() });
    });
    const answers = await openReceiver({ source: { dynamic: true }, autoaccept: true, credit_window: 10 });
    const reply_to = answers.source.address;
    assert.ok(reply_to);
    const sender = await openSender();
    for (const word of ['one', 'two', 'three']) {
        sender.send({ message_id: word, reply_to, body: word });
        const { message } = await answers.next();
        assert.equal(message.body, word.toUpperCase());
        assert.equal(message.correlation_id, word);
    }
});

test('dynamic queues differ and end with their link', async () => {
    const one = await openReceiver({ source: { dynamic: true } });
    const two = await openReceiver({ source: { dynamic: true } });
    assert.notEqual(one.source.address, two.source.address);
    const other = await connect();
    const sender = await openSender({ target: one.source.address }, other);
    one.close();
    await event(sender, 'sender_error');
    assert.equal(sender.error.condition, 'amqp:resource-deleted');
    const late = other.open_sender({ target: { address: one.source.address, capabilities: ['temporary-queue'] } });
    await event(late, 'sender_error');
    assert.equal(late.error.condition, 'amqp:not-found');
});

test('links come back under their names when the connection was lost', async () => {
    const lossy = await connect({ container_id: `lossy-${address}`, reconnect: true, initial_reconnect_delay: 10 });
    const receiver = await openReceiver({ name: 'in', autoaccept: true, credit_window: 10 }, lossy);
    const sender = await openSender({ name: 'out' }, lossy);
    sender.send({ body: 'before' });
    assert.equal((await receiver.next()).message.body, 'before');
    const lost = event(lossy, 'disconnected');
    lose(lossy);
    await lost;
    await event(lossy, 'connection_open');
    if (!sender.sendable()) {
        await event(sender, 'sendable');
    }
    sender.send({ body: 'after' });
    assert.equal((await receiver.next()).message.body, 'after');
});

test('a link name taken from another connection is stolen', async () => {
    const container_id = `same-${address}`;
    const first = await openReceiver({ name: 'stolen', credit_window: 10 }, await connect({ container_id }));
    const closed = event(first, 'receiver_error');
    await openReceiver({ name: 'stolen', credit_window: 10 }, await connect({ container_id }));
    await closed;
    assert.equal(first.error.condition, 'amqp:link:stolen');
});

test('a large message survives', async () => {
    const content = Buffer.alloc(4 << 20, 'amqp');
    await send(rhea.message.data_section(content));
    const receiver = await openReceiver();
    assert.ok((await receiver.take()).message.body.content.equals(content));
});

test('bodies keep their type and bytes', async () => {
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, n) => n));
    const bodies = [
        'Grüße, 世界 🐇', '', null, true, 1.5, new Date(0), { map: 'value' }, ['list', 1],
        rhea.message.data_section(bytes), rhea.message.data_sections([bytes, bytes]),
        rhea.message.sequence_section([1, 'two', false]),
    ];
    await send(...bodies);
    const receiver = await openReceiver({ credit_window: 100, autoaccept: true });
    for (const body of bodies) {
        assert.deepEqual((await receiver.next()).message.body, body);
    }
});

test('header, properties and annotations are kept', async () => {
    const sent = {
        durable: true,
        priority: 7,
        message_id: randomUUID(),
        user_id: Buffer.from('me'),
        subject: 'subject',
        correlation_id: 'ö'.repeat(300),
        content_type: 'text/plain',
        creation_time: new Date(1_700_000_000_000),
        group_id: 'group',
        group_sequence: 4_294_967_295,
        message_annotations: { 'x-opt-mine': 'kept' },
        application_properties: { string: 'é', number: 42, yes: true, nothing: null },
        body: 'a',
    };
    const sender = await openSender();
    sender.send(sent);
    await event(sender, 'accepted');
    const { message } = await (await openReceiver()).take();
    for (const [key, value] of Object.entries(sent)) {
        assert.deepEqual(message[key], value, key);
    }
    assert.ok(!message.delivery_count);
});

test('browsing takes nothing and sees each message once', async () => {
    await send('a', 'b');
    for (let n = 0; n < 2; n += 1) {
        const browser = await openReceiver({ source: { address, distribution_mode: 'copy' }, autoaccept: true });
        assert.equal(browser.source.distribution_mode, 'copy');
        browser.add_credit(10);
        browser.drain_credit();
        await event(browser, 'receiver_drained');
        assert.deepEqual(browser.arrived.map(({ message }) => message.body), ['a', 'b']);
        browser.close();
    }
    assert.deepEqual(await left(), ['a', 'b']);
});

test('what a closed receiver had not settled comes back in order', async () => {
    await send('a', 'b', 'c');
    const receiver = await openReceiver();
    receiver.add_credit(3);
    const deliveries = [await receiver.next(), await receiver.next(), await receiver.next()];
    deliveries[1].delivery.accept();
    receiver.close();
    await event(receiver, 'receiver_close');
    assert.deepEqual(await left(), ['a', 'c']);
});

test('what a lost connection had not settled comes back counted', async () => {
    await send('a');
    const lossy = await connect();
    await (await openReceiver({}, lossy)).take();
    const lost = event(lossy, 'disconnected');
    lose(lossy);
    await lost;
    const receiver = await openReceiver();
    const { message } = await receiver.take();
    assert.equal(message.body, 'a');
    assert.equal(message.delivery_count, 1);
});

test('sessions come and go', async () => {
    for (let n = 0; n < 200; n += 1) {
        const session = connection.create_session();
        session.open();
        await event(session, 'session_open');
        session.close();
        await event(session, 'session_close');
    }
    await send('a');
    assert.deepEqual(await left(), ['a']);
});
