package interop;

import static interop.Broker.PATIENCE_MS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.Connection;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueConnection;
import jakarta.jms.QueueRequestor;
import jakarta.jms.QueueSession;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TextMessage;
import org.apache.qpid.jms.JmsTemporaryQueue;
import org.junit.jupiter.api.Test;

/** Dynamic nodes, and request and reply through them. */
class TemporaryQueueTest extends JmsTest {

    @Test
    void messagesPassThroughIt() throws JMSException {
        TemporaryQueue temporary = session.createTemporaryQueue();
        assertNotEquals(temporary.getQueueName(), session.createTemporaryQueue().getQueueName());
        queue = temporary;
        send("a");
        expectLeft("a");
    }

    @Test
    void itIsGoneWhenDeleted() throws JMSException {
        try (Connection other = Broker.connect();
                Session its = other.createSession(Session.AUTO_ACKNOWLEDGE)) {
            TemporaryQueue temporary = its.createTemporaryQueue();
            queue = stranger(temporary);
            send("a");
            temporary.delete();
            assertThrows(InvalidDestinationException.class, () -> send("b"));
        }
    }

    @Test
    void itIsGoneWithItsConnection() throws JMSException {
        try (Connection other = Broker.connect();
                Session its = other.createSession(Session.AUTO_ACKNOWLEDGE)) {
            queue = stranger(its.createTemporaryQueue());
            send("a");
        }
        assertThrows(InvalidDestinationException.class, () -> send("b"));
    }

    @Test
    void aReplyFindsItsWayBack() throws Exception {
        try (Connection server = Broker.connect();
                Session its = server.createSession(Session.AUTO_ACKNOWLEDGE);
                MessageConsumer requests = its.createConsumer(queue);
                MessageProducer replies = its.createProducer(null)) {
            requests.setMessageListener(request -> {
                try {
                    Message reply = its.createTextMessage(((TextMessage) request).getText().toUpperCase());
                    reply.setJMSCorrelationID(request.getJMSMessageID());
                    replies.send(request.getJMSReplyTo(), reply);
                } catch (JMSException failed) {
                    throw new IllegalStateException(failed);
                }
            });
            server.start();
            TemporaryQueue answers = session.createTemporaryQueue();
            try (MessageProducer producer = session.createProducer(queue);
                    MessageConsumer consumer = session.createConsumer(answers)) {
                for (String word : new String[] {"one", "two", "three"}) {
                    TextMessage request = session.createTextMessage(word);
                    request.setJMSReplyTo(answers);
                    producer.send(request);
                    TextMessage reply = (TextMessage) consumer.receive(PATIENCE_MS);
                    assertEquals(word.toUpperCase(), reply.getText());
                    assertEquals(request.getJMSMessageID(), reply.getJMSCorrelationID());
                }
            }
        }
    }

    @Test
    void aRequestorGetsItsReply() throws Exception {
        try (Connection server = Broker.connect();
                Session its = server.createSession(Session.AUTO_ACKNOWLEDGE);
                MessageConsumer requests = its.createConsumer(queue);
                QueueConnection client = (QueueConnection) Broker.connect()) {
            requests.setMessageListener(request -> {
                try (MessageProducer replies = its.createProducer(request.getJMSReplyTo())) {
                    replies.send(its.createTextMessage("pong"));
                } catch (JMSException failed) {
                    throw new IllegalStateException(failed);
                }
            });
            server.start();
            client.start();
            QueueSession clients = client.createQueueSession(false, Session.AUTO_ACKNOWLEDGE);
            QueueRequestor requestor = new QueueRequestor(clients, queue);
            TextMessage reply = (TextMessage) requestor.request(clients.createTextMessage("ping"));
            assertEquals("pong", reply.getText());
            requestor.close();
        }
    }

    /** The same address as somebody sees it who did not make it: the client does not know when it ends. */
    private static Queue stranger(TemporaryQueue temporary) throws JMSException {
        return new JmsTemporaryQueue(temporary.getQueueName());
    }
}
