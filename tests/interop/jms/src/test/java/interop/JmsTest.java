package interop;

import static interop.Broker.NOTHING_MS;
import static interop.Broker.PATIENCE_MS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;

/** A started connection, an AUTO_ACKNOWLEDGE session and a queue of the test's own. */
@Timeout(value = 60, unit = TimeUnit.SECONDS)
abstract class JmsTest {

    Connection connection;
    Session session;
    Queue queue;

    @BeforeEach
    void open() throws JMSException {
        connection = Broker.connect();
        connection.start();
        session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
        queue = session.createQueue("jms-" + UUID.randomUUID());
    }

    @AfterEach
    void close() throws JMSException {
        connection.close();
    }

    void send(String... texts) throws JMSException {
        try (MessageProducer producer = session.createProducer(queue)) {
            for (String text : texts) {
                producer.send(session.createTextMessage(text));
            }
        }
    }

    /** The next message, whose text must be {@code text}. */
    static Message expect(MessageConsumer consumer, String text) throws JMSException {
        Message message = consumer.receive(PATIENCE_MS);
        assertNotNull(message, "no message instead of " + text);
        assertEquals(text, ((TextMessage) message).getText());
        return message;
    }

    static void expectNothing(MessageConsumer consumer) throws JMSException {
        assertNull(consumer.receive(NOTHING_MS));
    }

    /** What is left in the queue, by a consumer that was not there before. */
    void expectLeft(String... texts) throws JMSException {
        try (MessageConsumer consumer = session.createConsumer(queue)) {
            for (String text : texts) {
                expect(consumer, text);
            }
            expectNothing(consumer);
        }
    }

    static void expectDelivery(Message message, int deliveries) throws JMSException {
        assertEquals(deliveries, message.getIntProperty("JMSXDeliveryCount"));
        assertEquals(deliveries > 1, message.getJMSRedelivered());
    }
}
