package interop;

import static interop.Broker.PATIENCE_MS;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import jakarta.jms.BytesMessage;
import jakarta.jms.CompletionListener;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** What goes in comes out. */
class MessageTest extends JmsTest {

    private static final int LARGE_BYTES = 10 << 20; // Some 160 frames of 64 KiB.

    @Test
    void headersAndPropertiesAreKept() throws JMSException {
        TextMessage sent = session.createTextMessage("Grüße, 世界 🐇");
        sent.setJMSCorrelationID("correlation");
        sent.setJMSType("type");
        sent.setJMSReplyTo(session.createQueue("answers"));
        sent.setStringProperty("string", "value");
        sent.setLongProperty("long", Long.MIN_VALUE);
        sent.setDoubleProperty("double", 0.1);
        sent.setBooleanProperty("boolean", true);
        sent.setStringProperty("JMSXGroupID", "group");
        sent.setIntProperty("JMSXGroupSeq", 7);
        try (MessageProducer producer = session.createProducer(queue)) {
            producer.send(sent, DeliveryMode.NON_PERSISTENT, 8, 60_000);
        }
        TextMessage received = (TextMessage) receive();
        assertEquals("Grüße, 世界 🐇", received.getText());
        assertEquals(sent.getJMSMessageID(), received.getJMSMessageID());
        assertEquals("correlation", received.getJMSCorrelationID());
        assertEquals("type", received.getJMSType());
        assertEquals(session.createQueue("answers"), received.getJMSReplyTo());
        assertEquals(queue, received.getJMSDestination());
        assertEquals(DeliveryMode.NON_PERSISTENT, received.getJMSDeliveryMode());
        assertEquals(8, received.getJMSPriority());
        assertEquals(sent.getJMSTimestamp(), received.getJMSTimestamp());
        assertEquals(sent.getJMSExpiration(), received.getJMSExpiration());
        assertEquals("value", received.getStringProperty("string"));
        assertEquals(Long.MIN_VALUE, received.getLongProperty("long"));
        assertEquals(0.1, received.getDoubleProperty("double"));
        assertEquals(true, received.getBooleanProperty("boolean"));
        assertEquals("group", received.getStringProperty("JMSXGroupID"));
        assertEquals(7, received.getIntProperty("JMSXGroupSeq"));
        expectDelivery(received, 1);
    }

    @Test
    void aPersistentMessageSaysSo() throws JMSException {
        send("a");
        assertEquals(DeliveryMode.PERSISTENT, receive().getJMSDeliveryMode());
    }

    @Test
    void mapStreamObjectAndEmptyMessagesAreKept() throws JMSException {
        MapMessage map = session.createMapMessage();
        map.setInt("one", 1);
        map.setBytes("bytes", new byte[] {1, 2, 3});
        StreamMessage stream = session.createStreamMessage();
        stream.writeString("first");
        stream.writeFloat(2.5f);
        try (MessageProducer producer = session.createProducer(queue)) {
            producer.send(map);
            producer.send(stream);
            producer.send(session.createObjectMessage("serialized"));
            producer.send(session.createMessage());
        }
        MapMessage receivedMap = (MapMessage) receive();
        assertEquals(1, receivedMap.getInt("one"));
        assertArrayEquals(new byte[] {1, 2, 3}, receivedMap.getBytes("bytes"));
        StreamMessage receivedStream = (StreamMessage) receive();
        assertEquals("first", receivedStream.readString());
        assertEquals(2.5f, receivedStream.readFloat());
        assertEquals("serialized", receive().getBody(String.class));
        assertNull(receive().getBody(Object.class));
    }

    @Test
    void aLargeMessageIsKept() throws JMSException {
        byte[] body = new byte[LARGE_BYTES];
        new Random(1).nextBytes(body);
        BytesMessage sent = session.createBytesMessage();
        sent.writeBytes(body);
        try (MessageProducer producer = session.createProducer(queue)) {
            producer.send(sent);
        }
        assertArrayEquals(body, receive().getBody(byte[].class));
    }

    @Test
    void anAsynchronousSendCompletes() throws Exception {
        CompletableFuture<Message> completed = new CompletableFuture<>();
        TextMessage sent = session.createTextMessage("a");
        try (MessageProducer producer = session.createProducer(queue)) {
            producer.send(sent, new CompletionListener() {
                @Override
                public void onCompletion(Message message) {
                    completed.complete(message);
                }

                @Override
                public void onException(Message message, Exception failure) {
                    completed.completeExceptionally(failure);
                }
            });
            assertEquals(sent, completed.get(PATIENCE_MS, TimeUnit.MILLISECONDS));
        }
        expectLeft("a");
    }

    @Test
    void aProducerWithoutADestinationReachesEachQueue() throws JMSException {
        try (MessageProducer producer = session.createProducer(null)) {
            producer.send(queue, session.createTextMessage("a"));
            producer.send(session.createQueue(queue.getQueueName() + "-2"), session.createTextMessage("b"));
            producer.send(queue, session.createTextMessage("c"));
        }
        expectLeft("a", "c");
    }

    private Message receive() throws JMSException {
        try (MessageConsumer consumer = session.createConsumer(queue)) {
            return consumer.receive(PATIENCE_MS);
        }
    }
}
