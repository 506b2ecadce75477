package interop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Credit, drain, browsing, and consumers that come and go. */
class ConsumerTest extends JmsTest {

    @Test
    void anEmptyQueueAnswersAtOnce() throws JMSException {
        try (MessageConsumer consumer = session.createConsumer(queue)) {
            for (int i = 0; i < 20; i++) {
                assertNull(consumer.receiveNoWait());
            }
            send("a");
            expect(consumer, "a");
            expectNothing(consumer);
        }
    }

    @Test
    void withoutPrefetchEachReceiveAsksForOne() throws JMSException {
        send("a", "b", "c");
        try (Connection other = Broker.connect("jms.prefetchPolicy.all=0");
                Session its = other.createSession(Session.AUTO_ACKNOWLEDGE);
                MessageConsumer consumer = its.createConsumer(queue)) {
            other.start();
            expect(consumer, "a");
            expect(consumer, "b");
            expectLeft("c");
            expectNothing(consumer);
            assertNull(consumer.receiveNoWait());
        }
    }

    @Test
    void aBrowserSeesAllInOrderAndTakesNone() throws JMSException {
        send("a", "b", "c");
        try (QueueBrowser browser = session.createBrowser(queue)) {
            assertEquals(List.of("a", "b", "c"), texts(browser));
            assertEquals(List.of("a", "b", "c"), texts(browser));
        }
        expectLeft("a", "b", "c");
        try (QueueBrowser browser = session.createBrowser(queue)) {
            assertFalse(browser.getEnumeration().hasMoreElements());
        }
    }

    @Test
    void twoConsumersShareAQueue() throws JMSException {
        List<String> seen = new ArrayList<>();
        try (Session other = connection.createSession(Session.AUTO_ACKNOWLEDGE);
                MessageConsumer first = session.createConsumer(queue);
                MessageConsumer second = other.createConsumer(queue)) {
            send("a", "b", "c", "d");
            for (int i = 0; i < 2; i++) {
                seen.add(((TextMessage) first.receive(Broker.PATIENCE_MS)).getText());
                seen.add(((TextMessage) second.receive(Broker.PATIENCE_MS)).getText());
            }
        }
        Collections.sort(seen);
        assertEquals(List.of("a", "b", "c", "d"), seen);
        expectLeft();
    }

    @Test
    void prefetchedMessagesGoToWhoComesNext() throws JMSException {
        String[] texts = new String[200];
        for (int i = 0; i < texts.length; i++) {
            texts[i] = "n" + i;
        }
        send(texts);
        try (Session other = connection.createSession(Session.AUTO_ACKNOWLEDGE);
                MessageConsumer consumer = other.createConsumer(queue)) {
            expect(consumer, "n0");
        }
        try (MessageConsumer consumer = session.createConsumer(queue)) {
            for (int i = 1; i < texts.length; i++) {
                expect(consumer, texts[i]);
            }
            expectNothing(consumer);
        }
    }

    @Test
    void aStoppedConnectionReceivesNothing() throws JMSException {
        try (MessageConsumer consumer = session.createConsumer(queue)) {
            connection.stop();
            send("a");
            assertNull(consumer.receiveNoWait());
            connection.start();
            expect(consumer, "a");
        }
    }

    @Test
    void manySessionsComeAndGo() throws JMSException {
        for (int i = 0; i < 100; i++) {
            try (Session other = connection.createSession(Session.AUTO_ACKNOWLEDGE);
                    MessageConsumer consumer = other.createConsumer(queue)) {
                send("n" + i);
                Message message = expect(consumer, "n" + i);
                expectDelivery(message, 1);
            }
        }
    }

    private static List<String> texts(QueueBrowser browser) throws JMSException {
        List<String> texts = new ArrayList<>();
        Enumeration<?> messages = browser.getEnumeration();
        while (messages.hasMoreElements()) {
            texts.add(((TextMessage) messages.nextElement()).getText());
        }
        return texts;
    }
}
