package interop;

import static interop.Broker.PATIENCE_MS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What each acknowledge mode leaves in the queue, and which deliveries count. */
class AcknowledgeTest extends JmsTest {

    // Qpid JMS's own modes; it has no public names for them. The last two ask for settled deliveries.
    private static final int INDIVIDUAL_ACKNOWLEDGE = 101;
    private static final int PRE_ACKNOWLEDGE = 100;
    private static final int NO_ACKNOWLEDGE = 257;

    @ParameterizedTest
    @ValueSource(
            ints = {
                Session.AUTO_ACKNOWLEDGE,
                Session.CLIENT_ACKNOWLEDGE,
                Session.DUPS_OK_ACKNOWLEDGE,
                INDIVIDUAL_ACKNOWLEDGE,
                PRE_ACKNOWLEDGE,
                NO_ACKNOWLEDGE
            })
    void whatWasAcknowledgedIsGone(int mode) throws JMSException {
        send("a", "b");
        try (Session other = connection.createSession(mode);
                MessageConsumer consumer = other.createConsumer(queue)) {
            expect(consumer, "a").acknowledge();
            expect(consumer, "b").acknowledge();
        }
        expectLeft();
    }

    @Test
    void unacknowledgedMessagesComeBackInOrder() throws JMSException {
        send("a", "b", "c");
        try (Session other = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
                MessageConsumer consumer = other.createConsumer(queue)) {
            expect(consumer, "a");
            expect(consumer, "b");
        }
        try (MessageConsumer consumer = session.createConsumer(queue)) {
            // The client itself says modified(delivery-failed) for what the application has seen.
            expectDelivery(expect(consumer, "a"), 2);
            expectDelivery(expect(consumer, "b"), 2);
            expectDelivery(expect(consumer, "c"), 1);
        }
    }

    @Test
    void clientAcknowledgeCoversAllThatTheSessionReceived() throws JMSException {
        send("a", "b", "c");
        try (Session other = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
                MessageConsumer consumer = other.createConsumer(queue)) {
            expect(consumer, "a");
            expect(consumer, "b").acknowledge();
            expect(consumer, "c");
        }
        expectLeft("c");
    }

    @Test
    void individualAcknowledgeCoversOneMessage() throws JMSException {
        send("a", "b", "c");
        try (Session other = connection.createSession(INDIVIDUAL_ACKNOWLEDGE);
                MessageConsumer consumer = other.createConsumer(queue)) {
            expect(consumer, "a");
            expect(consumer, "b").acknowledge();
            expect(consumer, "c");
        }
        expectLeft("a", "c");
    }

    @Test
    void recoverRedeliversInOrderAndCounts() throws JMSException {
        send("a", "b");
        try (Session other = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
                MessageConsumer consumer = other.createConsumer(queue)) {
            expectDelivery(expect(consumer, "a"), 1);
            expectDelivery(expect(consumer, "b"), 1);
            other.recover();
            expectDelivery(expect(consumer, "a"), 2);
            expectDelivery(expect(consumer, "b"), 2);
            other.recover();
            expectDelivery(expect(consumer, "a"), 3);
            expect(consumer, "b").acknowledge();
        }
        expectLeft();
    }

    @Test
    void aMessageWhoseListenerThrewIsDeliveredAgain() throws Exception {
        send("a", "b");
        List<String> seen = new ArrayList<>();
        CountDownLatch three = new CountDownLatch(3);
        try (MessageConsumer consumer = session.createConsumer(queue)) {
            consumer.setMessageListener(message -> {
                seen.add(text(message));
                three.countDown();
                if (seen.size() == 1) {
                    throw new IllegalStateException("on purpose");
                }
            });
            assertTrue(three.await(PATIENCE_MS, TimeUnit.MILLISECONDS), () -> "seen: " + seen);
        }
        assertEquals("a", seen.get(0));
        assertEquals(List.of("a", "a", "b"), seen.stream().sorted().toList());
    }

    private static String text(Message message) {
        try {
            return ((TextMessage) message).getText();
        } catch (JMSException failed) {
            throw new IllegalStateException(failed);
        }
    }
}
